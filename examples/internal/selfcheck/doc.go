// Package selfcheck has what the examples that check themselves share. These are the table of
// checks, the line of JSON and the exit status at the end; the log lines and the progress bar
// before that; the count of leaked goroutines; the -log-level flag; a writer for several
// goroutines; and a sleep that a context ends.
package selfcheck
