// Package metric holds a broker's metrics: durations (histogram.go) and the statistics as a whole
// (stats.go). Purgatories count their own pending operations.
package metric
