// Package calls holds requests in flight: each waits for its reply, which carries its id, or
// for its timeout.
//
// # When to use it
//
// A client that has many requests in flight on one connection, with replies in any order, needs
// it: an RPC client, a database driver, a broker's client. The usual solution is a map with a
// mutex and a timer for each call. It then has to handle the races: a reply against the timer, a
// caller that gives up and leaves its entry behind, a connection that is lost after the call
// was registered and before it was sent. A [Table] is that map, and handles each of these.
//
// Where requests have no ids, a caller waits for a condition ([purgatory.Purgatory.Await]) or a
// number ([purgatory.Threshold.Await]).
//
// # How to use it
//
// Each connection has a [Group]: its own ids, and calls that end together.
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
//			calls.CloseWithError(err) // ends the pending calls, and refuses later ones
//			return
//		}
//		calls.Reply(id, reply)
//	}
//
// The user chooses ids: a counter for each connection is enough. Where a reply can arrive on
// any connection, use ids that are unique in the table and its own methods: [Table.Do],
// [Table.Reply].
//
// # Guarantees
//
// Each accepted call ends exactly once: by its reply, its timeout, its context, by
// [Group.Fail], because its group or table is closed, or because it could not be sent. Do
// returns the reply or the error; [Group.Go] passes it to the done function. When two of these
// race, one wins: Reply and Fail report whether they ended the call. A done function that
// panics, or ends its goroutine, prevents no other call from ending.
//
// A call never expires early, by the monotonic clock. A call of Do expires at most one tick
// late (500 µs), plus the time that the machine takes to wake a goroutine, even while done
// functions block. A call of Go needs a worker for its done function: while Options.Workers of
// these block, it expires when the first of them returns, and a reply can end it until then.
//
// A call whose id is in use by a pending call is refused with [ErrDuplicate]; the pending call
// is not affected. A reply that is late, duplicate or unsolicited is counted
// ([Stats.Unmatched]) and does nothing else, unless its id is in use again by then. So an id
// must not be used again while a reply of its last use can still arrive. A 32-bit counter is
// enough, an 8-bit one is not.
//
// An ended call leaves nothing behind: it is in no map and on no wheel, even while done
// functions block, and memory follows the number of calls up and down.
//
// # Cost
//
// A call takes constant time: an entry in a map under the group's own mutex, and a timer on a
// [timingwheel.Wheel]. It allocates nothing once records can be used again, and has no
// goroutine of its own. A table has one goroutine while nothing expires, and another one after
// its first call of Go with a timeout; a group has none. A pending call takes about 170 bytes,
// and 110 more in Do, in addition to the caller's goroutine. A group takes about 310 bytes, 140
// more once it has had a call, and 290 for each of the five ways in which one of its calls has
// ended, twice that for the timeout. (R a string, Go 1.26, amd64.)
//
// A group's calls share one lock. The table's own calls are spread over several, by id. Only
// two operations hold such a lock for longer than a few calls take: closing a group, and
// shrinking its map when seven eighths of the peak number of calls have ended. Shrinking takes
// constant time for each remaining call, of which there are 125,000 after a peak of a million.
// It delays the call whose end causes it, and other calls of the group that begin or end then.
package calls
