// Package metric counts what a broker does: durations (histogram.go), and all of it together
// (stats.go). Purgatories count the operations that wait in them themselves.
package metric
