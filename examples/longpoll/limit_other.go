//go:build !unix

package main

// connectionsAllowed is how many connections this process may have, both ends of each.
func connectionsAllowed() int { return 10_000 }
