// Package longpoll delays the answers of HTTP requests until there is something to say: a
// handler waits on a purgatory for as long as its client allows.
//
//	func (s *server) poll(w http.ResponseWriter, r *http.Request) {
//		feed, seen := r.PathValue("feed"), entriesSeen(r)
//		if !longpoll.Wait(w, r, s.polls, func() bool { return s.feeds.len(feed) > seen }, feed) {
//			return // answered, or the client has disconnected
//		}
//		json.NewEncoder(w).Encode(s.feeds.after(feed, seen))
//	}
//
//	server.RegisterOnShutdown(s.polls.Close)
//
// [Wait] does everything else that a waiting handler must do. It takes the time from the
// request: "Prefer: wait=30" (RFC 7240), or the query "?wait=30", within bounds. It answers 204
// when the time has passed, and 503 with a Retry-After when the purgatory is full or closed, or
// has cancelled the poll. It ends when the client disconnects, or the request's context is done
// otherwise, and keeps the server's WriteTimeout from ending a waiting poll, as long as each
// middleware's ResponseWriter has an Unwrap method. [Polls] has options: periodic
// bytes for proxies that close idle connections, and a bound for each client.
//
// # Shutdown
//
// http.Server.Shutdown waits for the requests in progress, long polls included: by default for
// the longest of them. Close the purgatory with RegisterOnShutdown, as above: then all polls
// are answered at once, with 503 and "Connection: close", and their clients reconnect to
// another server. A server whose BaseContext ends with its process's signal needs this as well:
// polls whose context is done also get 503, but their connections stay open.
//
// # Cost
//
// net/http has a goroutine for each poll, and over HTTP/1.1 another one that detects the
// disconnect. With their buffers a pending poll takes 22 KB there, and 12 KB over HTTP/2, of
// which 1.4 and 1.1 KB belong to this package and the purgatory. (Go 1.26, amd64; the heap and
// the stacks, without the kernel's buffers; W15 of limbo's bench.) The purgatory adds no
// goroutine.
package longpoll
