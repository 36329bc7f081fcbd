// Package e2e runs the worker's real binary against real and embedded parts, breaks them, and compares the table with the truth.
package e2e
