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
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/stretchr/testify/require"
)

// BenchmarkCollect is a scrape with 50 purgatories that hold a million operations, two keys
// each, each with a wheel of its own or all with one.
//
// Beside it, Stats of one purgatory and of its wheel, which hold their locks for less
// than that.
func BenchmarkCollect(b *testing.B) {
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprintf("shared=%t", shared), func(b *testing.B) {
			ctx := context.Background() // without a cancel, which each operation would have to hear of
			const purgatories, operations = 50, 1_000_000
			r := New()
			var wheel *purgatory.Wheel
			if shared {
				var err error
				wheel, err = purgatory.NewWheel(purgatory.WheelOptions{})
				require.NoError(b, err)
				defer wheel.Close()
			}
			var first *purgatory.Purgatory[int]
			wheels := map[*purgatory.Wheel]bool{}
			for i := range purgatories {
				p, err := purgatory.New[int](purgatory.Options{Wheel: wheel})
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
				wheels[p.Wheel()] = true
			}
			for pending := 0; pending < operations; runtime.Gosched() { // timeouts come to the wheel after 50 ms
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
					first.Wheel().Stats()
				}
			})
		})
	}
}
