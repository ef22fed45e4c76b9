package observe_test

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
)

// A program registers one Registry with Prometheus and adds its sources; promhttp serves the
// metrics.
func Example() {
	r := observe.New()
	metrics := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	metrics.MustRegister(r)

	fetches, err := purgatory.New[string](purgatory.Options{})
	if err != nil {
		panic(err)
	}
	remove, err := r.Add("fetches", observe.Purgatory(fetches, nil))
	if err != nil {
		panic(err)
	}
	if _, err := fetches.TryCompleteElseWatch(context.Background(), fetch{}, time.Minute, "topic-1", "topic-2"); err != nil {
		panic(err)
	}
	show(metrics, "limbo_purgatory_operations", "limbo_purgatory_watches")

	if err := fetches.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	show(metrics, "limbo_purgatory_operations") // the last value
	remove()
	show(metrics, "limbo_purgatory_operations") // no metrics
	// Output:
	// limbo_purgatory_operations{name="fetches"} 1
	// limbo_purgatory_watches{name="fetches"} 2
	// limbo_purgatory_operations{name="fetches"} 0
}

// A function can publish metrics that limbo has no source for.
func ExampleCustom() {
	r := observe.New()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(r)
	leases := map[string]int{"shard-1": 4, "shard-2": 7}
	if _, err := r.Add("reminders", observe.Custom("journal", func() (all []observe.Metric) {
		for _, shard := range []string{"shard-1", "shard-2"} {
			all = append(all, observe.Metric{
				Name: "leases", Help: "Leases held", Label: "shard", LabelValue: shard, Value: float64(leases[shard]),
			})
		}
		return all
	})); err != nil {
		panic(err)
	}
	show(metrics, "limbo_journal_leases", "limbo_journal_invalid_metrics")
	// Output:
	// limbo_journal_leases{name="reminders",shard="shard-1"} 4
	// limbo_journal_leases{name="reminders",shard="shard-2"} 7
	// limbo_journal_invalid_metrics{name="reminders"} 0
}

// fetch is an operation that is never completed.
type fetch struct{}

func (fetch) TryComplete() bool                 { return false }
func (fetch) Complete(purgatory.Outcome, error) {}

// show prints gauges in the format of a scrape.
func show(metrics prometheus.Gatherer, names ...string) {
	families, err := metrics.Gather()
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.Metric {
				labels := ""
				for i, l := range m.Label {
					if i > 0 {
						labels += ","
					}
					labels += fmt.Sprintf("%s=%q", l.GetName(), l.GetValue())
				}
				fmt.Printf("%s{%s} %g\n", name, labels, m.GetGauge().GetValue())
			}
		}
	}
}
