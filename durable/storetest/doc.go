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
// [Fuzz] makes a fuzz target of the part that compares with the Oracle.
//
// [Oracle] is a Store in memory that is slow, simple and right: the suite compares
// engines with it, and programs can use it as their Store in tests, also in a
// bubble of testing/synctest.
package storetest
