// Package aggregate turns events into rows of day × dimensions × measures.
package aggregate
