// Package planning decides what a schedule does: which planned times become occurrences, which are
// skipped, and which wait. It consists of functions of values. The engine's time, the history and
// the state of the previous occurrence are arguments, so workers that repeat each other's
// unfinished work decide the same.
//
//	times.go       the planned times of a schedule
//	occurrence.go  what a planned time becomes, and its names
//	plan.go        a plan: the rules of a schedule, and its progress
//	advance.go     one advance of a plan
package planning
