//go:build synctests

package tour

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/internal/network"
)

// These tests run the tour in virtual time, in which a stall of the machine changes nothing: go
// test -tags synctests. With that tag, kgo waits for its locks in a way that testing/synctest
// recognizes; without it, a goroutine that waits for such a lock would stop the time of the bubble.

// inVirtualTime runs a test in a bubble, with a configuration that has its own network. Without a
// latency of the network, a client that retries at once would stop time.
func inVirtualTime(t *testing.T, test func(t *testing.T, cfg cluster.Config)) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Network = &network.Memory{Latency: 500 * time.Microsecond}
		test(t, cfg)
	})
}

// The whole tour, in the README's order and in a random one.
func TestTour(t *testing.T) {
	for _, seed := range []uint64{0, rand.Uint64()} {
		inVirtualTime(t, func(t *testing.T, cfg cluster.Config) {
			QuickFaultDetection(&cfg)
			l := DefaultLoad()
			l.Duration, l.Rate, l.Polls, l.Waits, l.Seed = time.Second, 500, 200, 2*time.Second, seed
			var live bytes.Buffer
			sum, err := runLoad(t.Context(), cfg, l, nil, &live)
			require.NoError(t, err)
			require.True(t, sum.Checks().OK(), "seed %d: %+v\n%s", seed, sum, &live)
			require.Equal(t, len(scenarios), sum.scenarios, "seed %d", seed)
			for kind, o := range sum.Operations {
				require.Positive(t, o.Completed, "seed %d: %s", seed, kind)
			}
			require.Positive(t, sum.moved, "polls that were sent on to another leader")
		})
	}
}
