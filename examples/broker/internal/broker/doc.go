// Package broker is one broker: a server for the requests of clients and of other brokers. Requests
// that cannot be answered yet wait in purgatories. A file whose name begins with a number handles
// the request of that API key.
//
// Read 01_fetch.go first: a fetch that waits for records. waiting.go completes fetches and the
// other operations.
package broker
