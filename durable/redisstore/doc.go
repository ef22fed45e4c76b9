// Package redisstore keeps durable timers in Redis 6.2 or later, or in Valkey: in
// one server with or without replicas, behind Sentinel, or in a Cluster.
//
// # Layout
//
// Each shard is a handful of keys with one hash tag, {namespace:shard}, and so in
// one slot of a Cluster. The scripts in lua/ change them; common.lua says what each
// key holds. A shard without timers keeps one record of less than 200 bytes: its
// last fence, the number of shards, and how many dead letters were dropped.
// Everything else expires or is removed.
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
// # Requests that are sent again
//
// A client that sends a request twice may change something twice, so the client's
// own repeats must be off. The store sends a request again by itself until its
// deadline. The scripts keep the last reply to each client for a minute, so the
// second answer to a request is the first one. If there is no answer until the
// deadline, and the request may have been received, the error is store.ErrUnsure.
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
// # A server that does not answer
//
// Calls about its shards fail when their time is over. Those about the shards of other
// servers do not wait for it: Look returns what the others have answered, a second after
// the first of them has at the latest. Open needs all servers.
//
// # Moving slots
//
// While a slot of a Cluster moves, requests about its shards are answered TRYAGAIN,
// and are sent again until the slot has moved. A key is moved in one step that
// blocks both servers, so a shard should not hold more than 250,000 timers where
// slots are moved under load.
package redisstore
