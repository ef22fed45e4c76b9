// Package storetest tests engines of durable timers.
//
// [Run] is the suite that every [store.Store] passes. An engine calls it from one of its tests,
// with an [Engine] that opens stores:
//
//	func TestSuite(t *testing.T) {
//		storetest.Run(t, storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
//			clock := newClock()
//			s := open(t, o.Shards, o.Limits, clock)
//			t.Cleanup(func() { _ = s.Close() })
//			return &storetest.Instance{Store: s, Advance: clock.Advance, Frozen: true}
//		}})
//	}
//
// Each test opens its own stores and is named for the rules that it checks. At its end it removes
// all timers and checks that the engine has no keys left. Run the suite with a frozen clock, which
// finds errors of a millisecond, and with a running one, which finds timers that are early by less.
//
// The suite compares the answers of an engine to random calls with those of the oracle, a store in
// memory that is slow, simple and correct; [Fuzz] makes a fuzz target of that. Package memstore
// offers the oracle to the tests of programs.
//
// # Files
//
//	run.go                    Run: the engine under test, and the list of all tests
//	fixture.go                a test's calls to its store; verify and drain at its end
//	schedule.go cancel.go     the calls, one test for each rule
//	claim.go lease.go end.go
//	successor.go dead.go
//	plan.go plan_ends.go      plans of schedules, their occurrences and histories
//	plan_claim.go             leases that swaps grant
//	timing.go text.go         times and texts at their limits
//	read.go events.go         reads and announcements
//	lifecycle.go              heartbeats, and stores that are closed or opened again
//	model.go model_steps.go   random calls, compared with the oracle; Fuzz
//	history.go hammer.go      concurrent calls: linearizable, and each timer acknowledged once
//	hour.go                   an hour of the engine's clock
//	faults_*_test.go          oracles with one fault each, which the suite must find
package storetest
