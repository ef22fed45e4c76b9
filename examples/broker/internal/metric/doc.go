// Package metric counts durations.
package metric
