// Package selfcheck is what those examples share that check themselves: the table of
// checks, the line of JSON and the exit status at the end; the lines and the progress bar
// before that; the count of goroutines that are left; the flag -log-level; a writer that
// several goroutines may use; and a sleep that a context ends.
package selfcheck
