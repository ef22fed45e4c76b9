// Package redisstore keeps durable timers in Redis 6.2 or later, or in Valkey: in one server with
// or without replicas, behind Sentinel, or in a Cluster.
//
//	client, err := redisstore.NewClient("redis://127.0.0.1:6379")
//	s, err := redisstore.Open(ctx, client, redisstore.Options{})
//
// # Layout
//
// Each shard is a handful of keys with one hash tag, {namespace:shard}, and so in one slot of a
// Cluster. The scripts in lua/ change them; common.lua lists the contents of each key. A shard
// without timers keeps one record of less than 200 bytes: its last fence, the number of shards, and
// the counts of scheduled timers and dropped dead letters. All other keys expire or are removed.
//
// The workers are in two keys of one slot, {namespace:heartbeats}: the expiry times of their
// heartbeats, and their status. Both are kept for an hour after the last heartbeat has expired.
//
// The plans of schedules wait in a separate lane, and are listed in an index. A plan takes about
// 600 bytes in addition to its body, with a history of ten ends without errors. One swap is one
// script, whatever its size, and blocks the server: noticeably so with 100 occurrences whose bodies
// have 64 KiB.
//
// # Time
//
// The clock is that of the server that holds the shard (TIME). After a fail-over to a server whose
// clock is ahead, timers are claimed early by that much; if its clock is behind, late. No other
// clock decides anything.
//
// # Which changes survive
//
// The server's configuration decides this. With appendfsync always, no acknowledged change is
// lost; with everysec, up to a second of changes; without an append-only file, all changes since
// the last snapshot. A fail-over loses the changes that the new master had not received.
// Options.WaitReplicas makes that less likely, but not impossible: a replica that has confirmed may
// not be the one that is promoted. After a fail-over that loses a claim, its timer is claimed again
// and run twice.
//
// # Requests that are sent again, and late requests
//
// A client that sends a request twice may change something twice, so the client's own retries must
// be off. The store itself sends a request again until its deadline. If it has no answer by then,
// and the server may have received the request, the error is store.ErrUnsure.
//
// A network can deliver a request long after its call has returned. Two rules keep it from taking
// effect then:
//
//   - A Store numbers its changes to a shard: claims, ends of runs, and all changes of timers.
//     Each request lists the lower numbers whose calls had not returned when its own call began.
//     The scripts keep, for each Store and shard, the highest number with this list, and the last
//     reply of each kind, for at least a minute, or the Lease if that is longer. A repeated request
//     gets the reply of its first execution. A request that has not been executed is refused if a
//     later change does not list it. So a call that returned ErrUnsure takes effect before a later
//     change of the same Store, or never.
//   - Each change, extension and heartbeat carries a deadline by the server's clock, after
//     which its script refuses it. The Store computes it from the time in the last reply
//     and the time that has passed since, by its own monotonic clock, so that the deadline is not
//     after the end of the call. If the server's clock was set forward, the Store learns the time
//     from one more round trip; the same holds for the first heartbeat that it sends to a Cluster.
//     So a call that returned ErrUnsure because its time was up has taken effect by then, or never
//     does.
//
// The two rules cost no round trip, some tens of bytes in a request, and up to three more commands
// in a script.
//
// These things remain possible:
//
//   - A call that ends early, because its ctx is cancelled or the Store is closed, can take effect
//     until its deadline (CallTimeout, or that of the ctx, at most 30 s), unless the same Store
//     changes something in the shard first. This includes a claim, and a swap that leases. No
//     worker learns of their leases, which then expire.
//   - A server whose clock goes back, or that replaces a server with a clock ahead of its own,
//     accepts late requests for longer by that much, until the Store's next reply.
//   - After a fail-over that lost the log, the new server knows only the deadlines.
//   - A late extension or heartbeat, within its deadline, counts from its arrival: if the worker
//     died in between, its death is noticed later by that much.
//   - A claim that the same Worker repeats in another call is recognised by its Token
//     unless the Worker has leased others in the shard since. After a minute, or its Lease
//     if that is longer, the log of the claim may have expired, and so have its leases. The
//     repeated claim then renews those that no other claim has taken, as the same attempts, if
//     they are among the first 100 expired leases of the shard. Others count as new attempts.
//
// A swap of a plan changes nothing if it arrives after another swap of the same plan, of any Store:
// each gives the plan a new ID, and the next names it.
//
// A script that fails midway, for example because its user has lost a right, keeps no reply. If the
// request arrives again it is executed once more; otherwise the error is store.ErrUnsure.
//
// A heartbeat expires by the server's clock. When that goes back, the next heartbeat of any worker
// moves all heartbeats back with it, so that each keeps its remaining time. The death of a worker
// in between is noticed later by the time between two heartbeats.
//
// # Announcements
//
// A lone server announces over pub/sub, a Cluster from Redis 7.0 over sharded pub/sub. An older
// Cluster announces nothing: [Store.Subscribe] sends one Gap event. Workers then find earlier
// timers when they poll, once a second, and within some seconds the timers that a worker without
// capacity leaves to others.
//
// A connection without an announcement for 15 s is pinged; without an answer for 2 s the
// subscription is renewed, and a Gap event is sent. Ten idle workers with 16 shards send a server
// 30 commands a second, these included.
//
// # Maxmemory
//
// At maxmemory Redis refuses Schedule, and a SwapPlans that would add a plan or an occurrence: the
// error is store.ErrFull, and nothing has changed. All other calls are made, including swaps that
// only replace or remove plans.
//
// # A server that does not answer
//
// Calls about its shards fail when their time is up. Calls about the shards of other servers do not
// wait for it: Horizons returns the other servers' answers at most a second after the first of
// them. Open needs all servers.
//
// # Moving slots
//
// While a slot of a Cluster moves, requests about its shards, and heartbeats, are answered
// TRYAGAIN, and are sent again until the slot has moved. A key is moved in one step that blocks
// both servers, so a shard should not hold more than 250,000 timers where slots are moved under
// load.
package redisstore
