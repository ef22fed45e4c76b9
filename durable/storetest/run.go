package storetest

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Engine opens stores for the suite.
type Engine struct {
	// Open opens a new and empty store, and releases its resources when the test ends. The tests of
	// Run run in parallel, each with its own stores.
	Open func(t testing.TB, o Options) *Instance
}

// Options are a test's requirements for a store.
type Options struct {
	Shards int
	Limits store.Limits
}

// Instance is a store that a test has opened. A test that needs a nil field is skipped.
type Instance struct {
	Store store.Store

	// Advance moves the engine's clock by whole milliseconds; a negative d moves it back.
	Advance func(d time.Duration)
	// Frozen reports whether only Advance changes the clock, which shows a whole millisecond, so
	// that replies can be predicted to the millisecond.
	Frozen bool

	// Reopen ends the store as a crash would, as far as the engine can, and opens the remaining
	// data. Stores of other tests must not be affected.
	Reopen func(t testing.TB) store.Store
	// LeasesEnd reports whether Reopen ends all leases and resets Stats.Scheduled to 0, as in an
	// engine that keeps both in memory only.
	LeasesEnd bool

	// Verify checks the data of the engine itself, while there are no calls. D14 calls it now and
	// then; a nil Verify skips nothing.
	Verify func(t testing.TB)

	// Left returns the engine's stored keys, except for its configuration and one record of at most
	// 200 bytes for each shard. It may omit keys that expire.
	Left func(t testing.TB) []string
}

// A test is one of the suite. Its name says which rules of the contract it checks.
type test struct {
	name string
	f    func(*fixture)
}

// contract is all tests except the long ones.
var contract = slices.Concat(
	scheduleTests, textTests, timeTests, cancelTests, successorTests, leaseTests, endTests,
	claimTests, deadTests, readTests, eventTests, lifecycleTests, planTests, swapClaimTests,
)

// longTests are the tests with many random calls.
var longTests = []test{
	{"D14 random calls, compared with the oracle", modelTest},
	{"D4 D5 D8 concurrent calls are linearizable", linearizable},
	{"D7 D12 hammered: each timer is acknowledged once", hammer},
}

// long reports whether longTests may take some minutes.
func long() bool { return os.Getenv("LIMBO_LONG") == "1" }

// RunPlans runs only the tests of plans, for engines on which all of Run would take too long, such
// as one on a Redis Cluster.
func RunPlans(t *testing.T, e Engine) {
	for _, c := range slices.Concat(planTests, swapClaimTests) {
		t.Run(c.name, func(t *testing.T) { c.f(newFixture(t, e)) })
	}
}

// Run tests an engine. It checks the rules of the contract one by one, compares random calls with
// the oracle, checks that histories of concurrent calls are linearizable, hammers the engine with
// concurrent workers, and runs through an hour of the engine's clock. With LIMBO_LONG=1 in the
// environment the last four take some minutes.
func Run(t *testing.T, e Engine) {
	for _, c := range slices.Concat(longTests, contract, []test{hourTest}) { // the longest first
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.f(newFixture(t, e))
		})
	}
}
