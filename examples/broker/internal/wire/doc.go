// Package wire speaks Kafka's protocol: it reads frames from connections, checks them
// before they are decoded (guard.go, layouts.go), hands requests to a Handler, and writes
// their answers in the order of the requests, whenever they come (reply.go, send.go).
//
// One goroutine serves a connection, however many of its requests wait: a reader, which
// handles one request after the other. A Reply may be answered from any goroutine, and that
// one may send the answer, as far as the kernel takes it at once; the rest is left to a
// goroutine for as long as there is one. So nobody is held up by a client's network.
package wire
