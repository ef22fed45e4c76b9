// Package broker is one broker: a server of the requests of clients and of other brokers,
// which keeps in purgatories what cannot be answered yet. A file that is named by a number
// has the request of that API key.
//
// Read 01_fetch.go first: a fetch that waits for records. waiting.go is what completes it
// and the others.
package broker
