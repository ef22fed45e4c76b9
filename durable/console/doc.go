// Package console serves a web page that shows and changes durable timers and schedules. It
// searches, retries, moves, cancels and removes timers, one of them or all that match a filter, and
// edits schedules. A [Console] is an [http.Handler]; a program can mount it at any path, because
// all addresses in the page are relative:
//
//	console, err := console.New(timers, console.Options{Token: token})
//	mux.Handle("/console/", http.StripPrefix("/console", console))
//	server.RegisterOnShutdown(console.Close)
//
// # Overview
//
// The first view shows, once a second:
//
//   - what the store holds;
//   - how many timers a second are scheduled, completed, retried and dead-lettered, and how late
//     they run, over the workers of all processes and the last 10 s;
//   - the timers that are due within the next minute, hour and day;
//   - the workers, including those that died within the last hour.
//
// Its charts cover the time since the page was opened, at most 5 minutes. One poll serves all
// pages. Polling takes at most 5 % of the time, but even a slow store is polled every 10 s.
// Counting the due timers takes at most 5 % of the time, too. Without an open and visible page
// there is no polling.
//
// # Security
//
// Without Options.Token, everybody who can reach the page can see and change all timers. The
// console then answers only requests whose Host is a loopback name or one of Options.Hosts, because
// another site can point a name of its own at this machine (DNS rebinding). With a token, the page
// asks for it once and keeps a session of 12 hours in an HttpOnly, SameSite=Strict cookie. Serve it
// over TLS beyond loopback.
//
//   - A POST of another origin is refused by [http.CrossOriginProtection], and every POST must
//     have the header X-Limbo-Console: 1, which no form can send.
//   - After five wrong tokens within a minute, an address is refused for the rest of it. Clients
//     behind one proxy share an address.
//   - Options.ReadOnly rejects every change.
//   - Every change is logged, with the remote address, the action and the count.
//
// # Bulk actions
//
// An action on all timers that match a filter runs in this process, by [durable.Timers.Bulk], even
// after the page is closed. Above 100 timers the user must type the number of matching timers; the
// console refuses the action if this number has changed by more than 10 %. The action retries after
// errors of the engine, until the user stops it. [Console.Close] ends it: an action does not
// survive its process. The counts of changed timers do not include a page of the action whose reply
// was lost.
package console
