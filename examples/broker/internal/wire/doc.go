// Package wire speaks Kafka's protocol: it reads frames from connections, checks them
// before they are decoded (guard.go, layouts.go), hands requests to a Handler, and writes
// their answers in the order of the requests, whenever they come (reply.go, writer.go).
//
// Two goroutines serve a connection, however many of its requests wait: a reader, which
// handles one request after the other, and a writer. A Reply may be answered from any
// goroutine; it only marks the answer as ready, so nobody is held up by a client's network.
package wire
