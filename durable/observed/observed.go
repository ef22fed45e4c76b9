// Package observed has package observe show durable timers and their workers. It is a
// package of its own so that who does without does not have to import Prometheus.
package observed

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/observe"
)

// readTimeout is how long a scrape waits for the store.
const readTimeout = 2 * time.Second

// Timers returns the source for a store's timers, of the kind durable. Each scrape asks the
// store, which counts without reading timers. Figures that cannot be read within 2 s are
// missing, and readable is 0.
func Timers(t *durable.Timers) observe.Source {
	return observe.Custom("durable", func() []observe.Figure {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		st, err := t.Stats(ctx)
		readable := observe.Figure{Name: "readable", Help: "Whether the store could be read: 0 or 1"}
		if err != nil {
			return []observe.Figure{readable}
		}
		readable.Value = 1
		return []observe.Figure{
			readable,
			{Name: "waiting", Help: "Timers that wait for their time or for another attempt", Value: float64(st.Waiting)},
			{Name: "overdue", Help: "Timers that wait and are due", Value: float64(st.Overdue)},
			{Name: "leased", Help: "Timers that a worker runs", Value: float64(st.Leased)},
			{Name: "dead", Help: "Dead letters", Value: float64(st.Dead)},
			{Name: "dropped_total", Help: "Dead letters that were removed because of their number or their age", Type: observe.Counter, Value: float64(st.Dropped)},
		}
	})
}

// Worker returns the source for a worker, of the kind durable_worker.
func Worker(w *durable.Worker) observe.Source {
	return observe.Custom("durable_worker", func() []observe.Figure {
		st := w.Stats()
		list := []observe.Figure{
			{Name: "running", Help: "Handlers that run", Value: float64(st.Running)},
			{Name: "ending", Help: "Handlers that have returned and whose ends are not written yet", Value: float64(st.Ending)},
			{Name: "members", Help: "Workers that live, this one included; 0 if that is not known", Value: float64(st.Members)},
			{Name: "preferred_shards", Help: "Shards that this worker is the first to claim from", Value: float64(st.Preferred)},
			{Name: "claimed_total", Help: "Leases that this worker got", Type: observe.Counter, Value: float64(st.Claimed)},
		}
		for _, end := range []struct {
			how string
			n   uint64
		}{
			{"done", st.Done}, {"retried", st.Retried}, {"snoozed", st.Snoozed}, {"given_back", st.GivenBack},
			{"buried", st.Buried}, {"buried_lost", st.BuriedLost}, {"cancelled", st.Cancelled}, {"lost", st.Lost}, {"unwritten", st.Unwritten},
		} {
			list = append(list, observe.Figure{
				Name: "ended_total", Help: "Runs by how they ended", Type: observe.Counter, Label: "how", LabelValue: end.how, Value: float64(end.n),
			})
		}
		return append(list,
			observe.Figure{Name: "panics_total", Help: "Panics of handlers", Type: observe.Counter, Value: float64(st.Panics)},
			observe.Figure{Name: "repaired_total", Help: "Records without a home that claims have removed", Type: observe.Counter, Value: float64(st.Repaired)})
	})
}
