package observe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// BenchmarkCollect scrapes 50 purgatories that hold a million operations with two keys each.
// Each purgatory has its own wheel, or all share one. It also measures Stats of one purgatory
// and of its wheel, which hold their locks for less than that.
func BenchmarkCollect(b *testing.B) {
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprintf("shared=%t", shared), func(b *testing.B) {
			ctx := context.Background() // without cancellation, to which each operation would subscribe
			const purgatories, operations = 50, 1_000_000
			r := New()
			var wheel *purgatory.Clock
			if shared {
				var err error
				wheel, err = purgatory.NewClock(purgatory.ClockOptions{})
				require.NoError(b, err)
				defer wheel.Close()
			}
			var first *purgatory.Purgatory[int]
			wheels := map[*purgatory.Clock]bool{}
			for i := range purgatories {
				p, err := purgatory.New[int](purgatory.Options{Clock: wheel})
				require.NoError(b, err)
				defer func() { require.NoError(b, p.Shutdown(ctx)) }()
				_, err = r.Add(fmt.Sprint("p", i), Purgatory(p, nil))
				require.NoError(b, err)
				for k := range operations / purgatories {
					_, err := p.TryCompleteElseWatch(ctx, never{}, time.Hour+time.Duration(k)*time.Second, k%1000, -k)
					require.NoError(b, err)
				}
				if first == nil {
					first = p
				}
				wheels[p.Clock()] = true
			}
			for pending := 0; pending < operations; runtime.Gosched() { // timeouts reach the wheel after 50 ms
				pending = 0
				for w := range wheels {
					pending += w.Stats().Pending
				}
			}
			runtime.GC()
			registered := prometheus.NewRegistry()
			registered.MustRegister(r)
			handler := promhttp.HandlerFor(registered, promhttp.HandlerOpts{})
			for _, accept := range []string{
				"text/plain;version=0.0.4",
				"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
			} {
				format, _, _ := strings.Cut(accept, ";")
				for _, encoding := range []string{"identity", "gzip"} {
					b.Run(fmt.Sprintf("scrape/format=%s/encoding=%s", path.Base(format), encoding), func(b *testing.B) {
						b.ReportAllocs()
						request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
						request.Header.Set("Accept", accept)
						request.Header.Set("Accept-Encoding", encoding)
						for b.Loop() {
							w := httptest.NewRecorder()
							handler.ServeHTTP(w, request)
							require.Equal(b, http.StatusOK, w.Code)
							b.ReportMetric(float64(w.Body.Len()), "B/scrape")
						}
					})
				}
			}
			b.Run("gather", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, err := registered.Gather()
					require.NoError(b, err)
				}
			})
			b.Run("purgatory", func(b *testing.B) {
				for b.Loop() {
					first.Stats()
				}
			})
			b.Run("wheel", func(b *testing.B) {
				for b.Loop() {
					first.Clock().Stats()
				}
			})
		})
	}
}

// BenchmarkEachSecond measures the reads of an open page each second: the snapshot, which a
// scrape reads too, and the lists of the selected source. The target is 20 ms for 40,000
// operations, and 500 ms for a million.
func BenchmarkEachSecond(b *testing.B) {
	for _, held := range []struct {
		name string
		open func(b *testing.B, n int) Source
	}{
		{"purgatory/keys=one", purgatoryOf(func(i int) []int { return []int{0} })},
		{"purgatory/keys=own", purgatoryOf(func(i int) []int { return []int{i} })},
		{"purgatory/keys=shared+own", purgatoryOf(func(i int) []int { return []int{i % 1000, -i - 1} })},
		{"threshold/keys=one", thresholdOf(func(i int) int { return 0 })},
		{"threshold/keys=own", thresholdOf(func(i int) int { return i })},
		{"calls/groups=none", callsOf(0)},
		{"calls/groups=100", callsOf(100)},
		{"calls/groups=own", callsOf(1 << 30)},
		{"wheel", wheelOfTimers(timingwheel.Options{})},
		{"wheel/size=largest", wheelOfTimers(timingwheel.Options{WheelSize: 1 << 16})},
		{"keyed", keyedOf},
	} {
		for _, n := range []int{40_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/held=%d", held.name, n), func(b *testing.B) {
				r := New()
				source := held.open(b, n)
				_, err := r.Add("x", source)
				require.NoError(b, err)
				runtime.GC()
				b.Run("snapshot", func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						r.Snapshot()
					}
				})
				if source.walk == nil {
					return
				}
				e := r.find(source.kind, "x")
				b.Run("lists", func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						e.listCache.expires = time.Time{}
						require.Len(b, e.lists().Oldest, listed)
					}
				})
			})
		}
	}
}

func purgatoryOf(keys func(i int) []int) func(*testing.B, int) Source {
	return func(b *testing.B, n int) Source {
		p, err := purgatory.New[int](purgatory.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, p.Shutdown(context.Background())) })
		for i := range n {
			_, err := p.TryCompleteElseWatch(context.Background(), never{}, timeoutOf(i), keys(i)...)
			require.NoError(b, err)
		}
		return Purgatory(p, nil)
	}
}

func thresholdOf(key func(i int) int) func(*testing.B, int) Source {
	return func(b *testing.B, n int) Source {
		t, err := purgatory.NewThreshold(func(int) int64 { return 0 }, purgatory.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, t.Shutdown(context.Background())) })
		for i := range n {
			_, err := t.TryCompleteElseWatch(context.Background(), never{}, timeoutOf(i), purgatory.All, purgatory.Goal[int, int64]{Key: key(i), Number: int64(i + 1)})
			require.NoError(b, err)
		}
		return Threshold(t, nil)
	}
}

// callsOf makes a source with calls in so many groups, or in the table itself if groups is 0.
func callsOf(groups int) func(*testing.B, int) Source {
	return func(b *testing.B, n int) Source {
		t, err := calls.New[int, int](calls.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, t.Shutdown(context.Background())) })
		enter := []func(int, time.Duration, func() error, func(int, error)) error{t.Go}
		if groups > 0 {
			enter = nil
			for range min(groups, n) {
				enter = append(enter, t.Group().Go)
			}
		}
		for i := range n {
			require.NoError(b, enter[i%len(enter)](i, timeoutOf(i), func() error { return nil }, func(int, error) {}))
		}
		return Calls(t, nil)
	}
}

func wheelOfTimers(o timingwheel.Options) func(*testing.B, int) Source {
	return func(b *testing.B, n int) Source {
		w, err := timingwheel.New(func(int) {}, o)
		require.NoError(b, err)
		b.Cleanup(func() {
			_, err := w.Shutdown(context.Background(), timingwheel.Discard)
			require.NoError(b, err)
		})
		for i := range n {
			_, err := w.Schedule(i, timeoutOf(i))
			require.NoError(b, err)
		}
		return Wheel(w)
	}
}

func keyedOf(b *testing.B, n int) Source {
	t, err := keyed.New(func(int, int) {}, timingwheel.Options{})
	require.NoError(b, err)
	b.Cleanup(func() {
		_, err := t.Shutdown(context.Background(), timingwheel.Discard)
		require.NoError(b, err)
	})
	for i := range n {
		require.NoError(b, t.Set(i, i, timeoutOf(i)))
	}
	return Wheel(t)
}

// timeoutOf spreads timeouts over all levels of a wheel, from an hour on.
func timeoutOf(i int) time.Duration {
	return time.Hour + time.Duration(i)*7919%1_000_003*(time.Duration(1)<<(i%24))*time.Microsecond
}
