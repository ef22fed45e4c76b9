// Package wire speaks Kafka's protocol with the clients of a broker. It reads frames from
// connections, checks them before they are decoded (guard.go, layouts.go), passes requests to a
// Handler, and writes their responses in the order of the requests, in whatever order they become
// ready (reply.go, send.go).
//
// One goroutine, the reader, serves a connection, however many of its requests wait; it handles one
// request after the other. Any goroutine may answer a Reply. It may also send as much of the
// response as the kernel takes at once; a temporary goroutine sends the rest. So a slow client's
// network blocks no other goroutine.
package wire
