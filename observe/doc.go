// Package observe shows what limbo holds: to Prometheus, to OpenTelemetry, as JSON, and as
// a live page for a person.
//
//	r := observe.New()
//	remove, err := r.Add("fetches", observe.Purgatory(fetches, nil))
//	prometheus.MustRegister(r)
//	http.Handle("/limbo/", http.StripPrefix("/limbo", observe.NewHandler(r)))
//
// A [Registry] holds what is observed, under names. It is a [prometheus.Collector], and
// [NewHandler] makes the page of it. Nothing here changes what it observes. README.md has
// a table of all metrics, a dashboard for Grafana, and alerts for Prometheus.
//
// # Names
//
// A source has a kind and a name, which is to stay the same from one start of the program
// to the next. Its metrics are limbo_<kind>_<figure>{name="..."}, the operations that wait
// in the purgatory fetches limbo_purgatory_operations{name="fetches"}, by the conventions
// of Prometheus: base units (seconds, bytes), and _total at the end of what only grows. A
// label outcome, how or cause tells parts of a sum apart, and all its values are there from
// the start, so that a rate sees the first event. Two sources of one kind and name are told
// apart ("fetches#2", in the order in which they came), and what has a wheel brings it
// along, as a source of the kind wheel under the same name. No key of an operation is ever
// in a label, so there are as many series as sources call for and no more.
//
// # Histograms
//
// Durations are published twice: as a classic histogram with bounds that double from
// 2^-20 s (953 ns) to 2^9 s (512 s), and as a native one of schema 0 with just these
// bounds, which costs a server one series instead of 33. A server that takes native ones
// sees these, the others the classic ones; of each a quantile is right to a factor of 2. What
// took longer than 512 s is in the bucket to 1,024 s of the native one. The dashboard and
// the alerts ask for both.
//
// # What a scrape costs
//
// The figures are counted anyway, in the parts of limbo themselves; a scrape adds them up,
// and walks over nothing that waits. With 50 purgatories that hold a million operations,
// each with its wheel, that takes 4 ms, and to answer a server 5 ms with native histograms,
// 14 ms as text and 18 ms as text with gzip, on a two-core Xeon
// (BenchmarkCollect). Each is locked while it is added up: a purgatory, or a wheel, for
// 2 µs on two cores, which grows with their number (10 µs for a wheel of 256 shards); a
// table of calls for 35 ns a group, against the making and closing of groups only.
//
// The figures of one source are of one moment, as its Stats says; the sources are read one
// after the other, and those that [Custom] made at the same time.
//
// # Concurrency
//
// All methods are safe for use from any goroutine, and none waits for what is observed:
// only for its locks, as above, and a scrape for the functions of [Custom] sources. What is
// a user's code is called without a lock of this package's held, and may panic: a format, a
// custom source's function, a [Wheeled].
package observe
