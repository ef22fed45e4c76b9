// Package calls holds requests that are in flight: each waits for its reply, which is
// told by an id, or for its time to be up.
//
// # When to use it
//
// For a client that has many requests under way on one connection, and whose replies come
// in any order: an RPC client, a database's driver, a broker's. Everybody writes a map
// with a mutex for it, and a timer for each call, and then meets the cases between: the
// reply that comes just when the timer does, the caller that goes away and leaves its
// entry behind, the connection that is lost after the call was noted and before it was
// sent. A [Table] is that map, with one answer to each case.
//
// Where nothing has an id, one caller waits for a condition ([purgatory.Purgatory.Await])
// or a number ([purgatory.Threshold.Await]).
//
// # How to use it
//
// Each connection has a [Group]: ids of its own, and calls that end together.
//
//	calls := table.Group()
//
//	// a caller
//	reply, err := calls.Do(ctx, id, 5*time.Second, func() error { return conn.write(id, request) })
//
//	// the connection's reader
//	for {
//		id, reply, err := conn.read()
//		if err != nil {
//			calls.CloseWithError(err) // ends all that wait, and refuses what comes
//			return
//		}
//		calls.Reply(id, reply)
//	}
//
// Ids are the user's: a counter for each connection does it. Where replies can come by any
// connection, ids are the table's, and its own methods take them: [Table.Do], [Table.Reply].
//
// # What holds
//
// Each call that was accepted ends exactly once: by its reply, its timeout, its context, by
// [Group.Fail], because its group or table is closed, or because it could not be sent. Do
// returns what ended it; the function that [Group.Go] was given is called with it. When two
// come at once one of them wins, and the other is told so: Reply and Fail report whether
// they ended the call. A done function that panics, or ends its goroutine, keeps no other
// call from its end.
//
// A call never expires early, by the monotonic clock. One of Do expires at most one tick
// late (500 µs), plus what the machine takes to wake a goroutine, also while done functions
// block. One of Go needs a worker for its done function: where Options.Workers of these
// block, it expires when the first of them returns, and can be replied to until then.
//
// An id that a call waits under is refused to another with [ErrDuplicate], and the first
// one is not touched. A reply that is late, comes twice or answers nothing is counted
// ([Stats.Unmatched]) and touches nothing, unless its id is in use again by then: so ids
// must not come back while a reply of their last use can still arrive. A counter of 32 bits
// is enough, one of 8 is not.
//
// Nothing is left behind: a call that ended is in no map, on no wheel and in no backlog, also
// while done functions block, and memory follows the number of calls up and down.
//
// # Cost
//
// A call takes constant time: an entry in a map under a mutex, which is the group's own,
// and a timer on a [timingwheel.Wheel]. It allocates nothing once records can be used
// again, and has no goroutine of its own. A table has one goroutine while nothing expires;
// a group has none. A call that waits takes some 190 bytes, and 110 more if it is of Do,
// beside its goroutine. A group takes some 340 bytes, 140 more once it had a call, and 290
// for each of the five ways in which one of its calls has ended, twice that for the timeout.
// (R a string, Go 1.26, amd64.)
//
// A group's calls share one lock. The table's own calls are spread over several, by their
// ids. Nothing holds one for longer than a few calls take, but for two: to close a group, and
// to make its map smaller when seven eighths of the most calls that it had have ended. This
// takes some 0.3 µs for each that is left, 30 ms when a million have become 125,000, and has
// the one that ends then, and the others of the group, wait for it.
package calls
