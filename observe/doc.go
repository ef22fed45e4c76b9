// Package observe publishes the state of limbo's parts: to Prometheus, to OpenTelemetry, as
// JSON, and as a live web page.
//
//	r := observe.New()
//	remove, err := r.Add("fetches", observe.Purgatory(fetches, nil))
//	prometheus.MustRegister(r)
//	http.Handle("/limbo/", http.StripPrefix("/limbo", observe.NewHandler(r)))
//
// A [Registry] holds named sources. It is a [prometheus.Collector], and [NewHandler] makes its
// page. Nothing here changes the state of a source. README.md has a table of all metrics, a
// dashboard for Grafana, and alerts for Prometheus.
//
// # Names
//
// A source has a kind and a name; the name should stay the same when the program restarts. Its
// metrics are limbo_<kind>_<metric>{name="..."}: the number of pending operations of the
// purgatory fetches is limbo_purgatory_operations{name="fetches"}. The names follow the
// conventions of Prometheus: base units (seconds, bytes), and _total at the end of a counter. A
// label outcome or cause splits a sum, and all its values are published from the start, so
// that a rate sees the first event. Two sources of the same kind and name get different names
// ("fetches#2", in the order in which they were added). A source with a wheel also adds the
// wheel, as a source of the kind wheel under the same name. No label contains the key of an
// operation, so the number of series depends only on the sources.
//
// # Histograms
//
// Durations are published twice: as a classic histogram with bounds that double from 2^-20 s
// (953 ns) to 2^9 s (512 s), and as a native histogram of schema 0 with the same bounds, which
// costs a server one series instead of 33. A server that accepts native histograms reads those,
// other servers read the classic ones; quantiles of either are right to a factor of 2. Durations
// above 512 s are in the native histogram's bucket up to 1,024 s. The dashboard and the alerts
// query both.
//
// # What a scrape costs
//
// The parts of limbo count in any case; a scrape adds up their counters, and iterates over no
// pending operations. With 50 purgatories that hold a million operations, each with its wheel,
// that takes 4 ms. Answering a server takes 5 ms with native histograms, 14 ms as text and 18 ms
// as text with gzip, on a two-core Xeon (BenchmarkCollect). A scrape locks each part while it
// adds up: a purgatory, or a wheel, for 2 µs on two cores, which grows with the number of cores
// (10 µs for a wheel of 256 shards); a table of calls for 35 ns a group, which blocks only the
// creation and closing of groups.
//
// The metrics of one source are of one moment, as its Stats says; the sources are read one after
// the other, and the [Custom] sources at the same time.
//
// # Concurrency
//
// All methods are safe for use from any goroutine. They wait only for the locks of the sources, as
// above, and a scrape waits for the functions of [Custom] sources. The package holds no lock of
// its own while it calls a user's code, which may panic: a format, a custom source's function, a
// [Wheeled].
package observe
