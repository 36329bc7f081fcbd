// Package checkpoint says where an owner of a partition goes on: histories, what the store holds of them, and the resume decision.
package checkpoint
