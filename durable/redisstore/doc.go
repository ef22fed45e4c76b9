// Package redisstore keeps durable timers in Redis 6.2 or later, or in Valkey: in
// one server with or without replicas, behind Sentinel, or in a Cluster.
//
// # Layout
//
// Each shard is a handful of keys with one hash tag, {namespace:shard}, and so in
// one slot of a Cluster. The scripts in lua/ change them; common.lua says what each
// key holds. A shard without timers keeps one record of less than 200 bytes: its
// last fence, the number of shards, and how many timers were scheduled and dead letters dropped.
// Everything else expires or is removed.
//
// The workers are in two keys of one slot, {namespace:signs}: when their heartbeats expire, and
// what they say. Both are kept for an hour after the last heartbeat has expired.
//
// The plans of schedules wait in a lane of their own, and are listed in an index. A plan takes
// about 600 bytes besides its body, with a history of ten ends without errors. One swap is one
// script, whatever its size: 100 occurrences with bodies of 64 KiB hold up the server.
//
// # Time
//
// The clock is that of the server that holds the shard (TIME). After a fail-over to
// a server whose clock is ahead, timers are claimed early by that much; one whose
// clock is behind makes them late. No other clock decides anything.
//
// # What a change survives
//
// The promise is that of the server's configuration. With appendfsync always,
// nothing that was answered is lost; with everysec, up to a second; without an
// append-only file, what came after the last snapshot. After a fail-over, what the
// replica had not received is lost. Options.WaitReplicas narrows that, and does not
// close it: a replica that has confirmed may not be the one that is promoted. A
// claim that is lost with a fail-over is claimed again: its timer is run twice.
//
// # Requests that are sent again, and requests that come late
//
// A client that sends a request twice may change something twice, so the client's
// own repeats must be off. The store sends a request again by itself until its
// deadline. If there is no answer until then, and the request may have been received, the
// error is store.ErrUnsure.
//
// A network can deliver a request long after its call has returned. Two rules keep it from
// taking effect then:
//
//   - A Store numbers its changes to a shard: claims, ends of runs, and all that timers are
//     changed by. Each request names the lower numbers whose calls had not returned when
//     its own began. The scripts keep, for each Store and shard, the highest number with
//     these names, and the last reply of each kind, for a minute, or for the Lease if that
//     is longer. A request that was carried out is answered with its reply. One that a
//     later change has left behind is refused. So what ended as unsure takes effect before
//     a later change of the same Store, or never.
//   - Each change, extension and heartbeat carries a deadline by the server's clock, after
//     which its script refuses it. The Store computes it from the time in the last reply
//     and the time that has passed since, by its own monotonic clock, so that it is not
//     after the end of the call. If the server's clock was set forward, one more round trip
//     tells the Store; so it is with the first heartbeat that it sends to a Cluster. So
//     what ended as unsure because its time was over never takes effect afterwards, for
//     other Stores either.
//
// This costs no round trip, 14 to 40 bytes in a request, and up to three more commands in a
// script.
//
// These things remain possible:
//
//   - A call that ends before its time, because its ctx is cancelled or the Store is closed,
//     can take effect until its deadline (CallTimeout, or that of the ctx, at most 30 s),
//     unless the same Store changes something in the shard first. This includes a claim, and
//     a swap that leases, of which no worker learns then: their leases run out.
//   - A server whose clock goes back, or one with a clock behind that takes the place of
//     another, accepts late requests for longer by that much, until the Store's next reply.
//   - After a fail-over that lost the log, the new server knows the deadlines only.
//   - An extension or a heartbeat that comes late, within its deadline, counts from when it
//     comes: a worker that died in between is missed later by that much.
//   - A claim that the same Worker makes again in another call is recognised by its Token
//     unless the Worker has leased others in the shard since. After a minute, or its Lease
//     if that is longer, the log of the claim may have expired, and its leases have run
//     out. It leases those again that no other claim has taken, as the same attempts, if
//     they are among the first 100 that have run out in the shard. Others of them count as
//     attempts.
//
// A swap of a plan changes nothing if it comes after another swap of the same plan, of any
// Store: each gives the plan a new ID, and the next names it.
//
// A script that ends midway, as when its user has lost a right, keeps no reply: the
// request is carried out once more if it comes again, and the error is store.ErrUnsure if it
// does not.
//
// A heartbeat counts by the server's clock. When that goes back, all heartbeats go with it
// at the next one of any worker, and keep what they had left: a worker that dies meanwhile
// is missed later by the time between two heartbeats.
//
// # Announcements
//
// A lone server announces over pub/sub, a Cluster from Redis 7.0 over sharded
// pub/sub. In an older Cluster nothing is announced: [Store.Subscribe] sends one
// Gap event, and workers find what is earlier when they look, once a second, and what
// a worker without room leaves within some seconds.
//
// A connection on which nothing is announced for 15 s is asked whether it lives; without an
// answer for 2 s the subscription is renewed, and a Gap event is sent. Ten idle workers with
// 16 shards send a server 30 commands a second, these included.
//
// # Maxmemory
//
// At maxmemory Redis refuses Schedule, and a SwapPlans that would add a plan or an occurrence:
// the error is store.ErrFull, and nothing was changed. All other calls are made, also swaps
// that only replace or remove plans.
//
// # A server that does not answer
//
// Calls about its shards fail when their time is over. Those about the shards of other
// servers do not wait for it: Look returns what the others have answered, a second after
// the first of them has at the latest. Open needs all servers.
//
// # Moving slots
//
// While a slot of a Cluster moves, requests about its shards, and heartbeats, are answered TRYAGAIN,
// and are sent again until the slot has moved. A key is moved in one step that
// blocks both servers, so a shard should not hold more than 250,000 timers where
// slots are moved under load.
package redisstore
