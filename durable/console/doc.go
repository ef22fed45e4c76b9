// Package console serves a page that shows durable timers and schedules, and changes them:
// searches, retries, moves, cancels and removes timers, one of them or all that match, and
// edits schedules. A [Console] is an [http.Handler] that a program mounts where it likes; all
// addresses in the page are relative:
//
//	console, err := console.New(timers, console.Options{Token: token})
//	mux.Handle("/console/", http.StripPrefix("/console", console))
//	server.RegisterOnShutdown(console.Close)
//
// # Overview
//
// The first view shows, once a second, what the store holds; how many timers a second are
// scheduled, completed, retried and dead-lettered, and how late they run, of the workers of all
// processes over the last 10 s; what is due within the next minute, hour and day; and the workers,
// those that died within the last hour included. Its charts go back for as long as the page has
// been open, 5 minutes at most. One poll serves all pages. It takes at most 5 % of the time, as does
// counting what is due. Without an open and visible page there is no poll.
//
// # Security
//
// Without Options.Token everybody who reaches the page sees and changes all timers: then it
// answers only requests whose Host is a loopback name or one of Options.Hosts, because another
// site can point a name of its own at this machine (DNS rebinding). With a token the page asks for it once,
// and keeps a session of 12 hours in an HttpOnly, SameSite=Strict cookie. Serve it by TLS
// beyond loopback.
//
//   - Every POST must come from the same origin, by Sec-Fetch-Site or else by Origin, and must
//     have the header X-Limbo-Console: 1, which no form can send.
//   - After five wrong tokens within a minute, an address is refused for the rest of it. Clients
//     behind one proxy share an address.
//   - Options.ReadOnly rejects every change.
//   - Every change is logged, with the remote address, the action and the count.
//
// # Bulk actions
//
// An action on all timers that match a filter runs in this process, by
// [durable.Timers.Bulk], also when the page is closed. Above 100 timers the user must type the
// number that match; the action is refused if that has changed by more than 10 %. It tries
// again after errors of the engine, until it is stopped. [Console.Close] ends it: an action
// does not survive its process. The counts of what was changed leave out a page whose reply
// was lost.
package console
