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
// The cookie is signed with a key that is derived from the token, and no process stores it. So
// consoles with the same token behind a load balancer, which need no sticky connections, and a
// console that was restarted, accept the sessions of each other. A new token ends all sessions.
//
// A logout removes the cookie from the browser, so the browser has no session at any process. The
// process that answers the logout ends the session's streams, and refuses the session as long as it
// runs. The other processes do not learn of the logout: until 12 hours after the login, they accept a
// copy of the cookie that was made before. No script can make such a copy, but a program that reads
// the browser's files can, and so can a proxy or a network without TLS.
//
//   - A POST of another origin is refused by [http.CrossOriginProtection], and every POST must
//     have the header X-Limbo-Console: 1, which no form can send.
//   - After five wrong tokens within a minute, a login from the same address, or the same /64 of
//     IPv6, is refused for the rest of it. Even the right token is refused then: the answer would
//     otherwise tell which guess is right. A session is never refused. Each process counts for
//     itself. Clients behind a proxy share its address unless Options.TrustedProxies names the
//     proxy, so that one of them can lock out the others.
//   - Options.ReadOnly rejects every change.
//   - Every change is logged, with the addresses of the peer and the client, the action and the
//     count.
//
// # Bulk actions
//
// An action on all timers that match a filter runs in this process, by [durable.Timers.Bulk], even
// after the page is closed. Above 100 timers the user must type the number of matching timers; the
// console refuses the action if this number has changed by more than 10 %. The action retries after
// errors of the engine, until the user stops it. [Console.Close] ends it: an action does not
// survive its process. The counts of changed timers do not include a page of the action whose reply
// was lost.
//
// Each action names the process that runs it (Options.Process). Only this process knows and can stop
// the action. Behind a load balancer the page finds it by repeated requests, each of which may reach
// another process: its view of the bulk actions asks once a second, and combines the replies.
package console
