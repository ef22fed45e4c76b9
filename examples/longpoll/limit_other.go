//go:build !unix

package main

// connectionsAllowed is the number of connections that this process may have, counting both ends.
func connectionsAllowed() int { return 10_000 }
