// Package openfiles tells the examples and the benchmark how many connections a process can have.
// It raises no limit, because package os has already raised it as far as the system allows.
package openfiles
