// Package planning decides what a schedule does: which planned times become occurrences, which are
// skipped, and which wait. It consists of functions of values. The engine's time, the history and
// the state of the previous occurrence are arguments, so workers that repeat each other's
// unfinished work decide the same.
package planning
