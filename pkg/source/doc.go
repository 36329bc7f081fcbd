// Package source reads records of a Kafka consumer group and commits offsets.
package source
