//go:build !unix

package main

// currentUsage panics: without getrusage there are no figures to show.
func currentUsage() usage { panic("bench: getrusage is missing, must be a Unix system") }
