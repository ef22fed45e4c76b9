// Package storetest tests engines of durable timers.
//
// [Run] is the suite that every [store.Store] passes. An engine calls it from a
// test of its own, with an [Engine] that opens stores:
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
// Each test opens stores of its own, is named for what it holds up, and ends by
// emptying its store and asking what is left. Run it with a clock that stands,
// which finds what is wrong by a millisecond, and with one that goes, which finds
// what is early by less.
//
// The suite compares the answers of an engine to random calls with those of the oracle, a
// store in memory that is slow, simple and right; [Fuzz] makes a fuzz target of that. Programs can have
// the oracle for their own tests, from package memstore.
//
// # Files
//
//	run.go                    Run: the engine under test, and the list of all tests
//	fixture.go                what a test calls its store by; verify and drain at its end
//	schedule.go cancel.go     the calls, one test for each rule
//	claim.go lease.go end.go
//	successor.go dead.go
//	timing.go text.go         times and texts at their bounds
//	look.go events.go life.go what a store tells, announces, and keeps when it is reopened
//	model.go model_steps.go   random calls, compared with the oracle; Fuzz
//	history.go hammer.go      concurrent calls: linearizable, and each timer acknowledged once
//	hour.go                   an hour of the engine's clock
//	faults_*_test.go          oracles with a fault each, which the suite has to find
package storetest
