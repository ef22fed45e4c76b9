// Package metric counts what a broker does: durations (histogram.go), operations by how
// they ended (operations.go), and all of it together (stats.go).
package metric
