package purgatory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

type flagOp struct {
	ready bool
	done  Outcome
}

func (o *flagOp) TryComplete() bool           { return o.ready }
func (o *flagOp) Complete(x Outcome, _ error) { o.done = x }

// BenchmarkWatch watches one operation on some of 10,000 keys and completes it
// through one of them.
func BenchmarkWatch(b *testing.B) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("topic-%d-partition-%d", i/100, i%100)
	}
	for _, n := range []int{1, 3, 10} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			p, err := New[string](Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Shutdown(context.Background())
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				at = (at + 7919) % (len(names) - n)
				op := new(flagOp)
				if h, err := p.TryCompleteElseWatch(context.Background(), op, 30*time.Second, names[at:at+n]...); h.IsZero() || err != nil {
					b.Fatal(h, err)
				}
				op.ready = true
				if p.CheckAndComplete(names[at+n/2]) != 1 {
					b.Fatal("not completed")
				}
			}
			if p.Watched() != 0 || p.Len() != 0 || p.KeyCount() != 0 || timers(&p.core) != 0 {
				b.Fatal("something is left behind")
			}
		})
	}
}

// BenchmarkContext measures the cost of a context: nothing if it cannot be cancelled,
// otherwise a hook that is set and removed.
func BenchmarkContext(b *testing.B) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"none": context.Background(), "cancellable": cancellable} {
		b.Run("context="+name, func(b *testing.B) {
			p, err := New[string](Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Shutdown(context.Background())
			b.ReportAllocs()
			for b.Loop() {
				op := new(flagOp)
				if _, err := p.TryCompleteElseWatch(ctx, op, 30*time.Second, "orders-0"); err != nil {
					b.Fatal(err)
				}
				op.ready = true
				p.CheckAndComplete("orders-0")
			}
		})
	}
}

// BenchmarkListings measures the calls that observe's page makes each second, with 40,000 and a
// million operations pending: each with its own key, each with three of 10,000 keys, or all on
// one. most is the number listed.
func BenchmarkListings(b *testing.B) {
	for _, n := range []int{40_000, 1_000_000} {
		for _, keys := range []string{"own", "shared", "one"} {
			p := open[int](b, Options{})
			for i := range n {
				of := []int{i}
				switch keys {
				case "shared":
					of = []int{rand.IntN(10_000), rand.IntN(10_000), rand.IntN(10_000)}
				case "one":
					of = []int{0}
				}
				mustWatch(b, p, neverReady{}, time.Hour, of...)
			}
			for _, most := range []int{20, n} {
				b.Run(fmt.Sprintf("call=Oldest/operations=%d/keys=%s/most=%d", n, keys, most), func(b *testing.B) {
					for b.Loop() {
						p.Oldest(most)
					}
				})
				b.Run(fmt.Sprintf("call=Hotspots/operations=%d/keys=%s/most=%d", n, keys, most), func(b *testing.B) {
					for b.Loop() {
						p.Hotspots(most)
					}
				})
			}
			mustShutdown(b, p)
		}
	}
}
