package daemon

import "github.com/seed-782fa212/limbo/durable/timerd/internal/api"

// metrics are those of the worker, if this process has one.
func (d *daemon) metrics(m *api.Metrics) {
	if d.worker == nil {
		return
	}
	h := d.hook.Stats()
	m.Family("limbo_webhook_calls_total", "counter", "Call-backs by what became of them.")
	m.Sample("limbo_webhook_calls_total", float64(h.Done), "result", "done")
	m.Sample("limbo_webhook_calls_total", float64(h.Retried), "result", "retried")
	m.Sample("limbo_webhook_calls_total", float64(h.Discarded), "result", "discarded")
	m.Single("limbo_webhook_put_off_total", "counter", "Call-backs put off because their host had too many.", float64(h.PutOff))
	m.Single("limbo_webhook_hosts", "gauge", "Hosts with call-backs under way.", float64(h.Hosts))
	w := d.worker.Stats()
	m.Single("limbo_worker_running", "gauge", "Call-backs under way.", float64(w.Running))
	m.Single("limbo_worker_members", "gauge", "Workers that share the store and live, this one included.", float64(w.Members))
	m.Single("limbo_worker_claimed_total", "counter", "Leases that this worker got.", float64(w.Claimed))
	m.Family("limbo_worker_runs_total", "counter", "Runs by how they ended.")
	for _, end := range []struct {
		name string
		n    uint64
	}{
		{"done", w.Done}, {"retried", w.Retried}, {"snoozed", w.Snoozed}, {"given_back", w.GivenBack}, {"buried", w.Buried},
		{"buried_lost", w.BuriedLost}, {"cancelled", w.Cancelled}, {"lost", w.Lost}, {"unwritten", w.Unwritten},
	} {
		m.Sample("limbo_worker_runs_total", float64(end.n), "end", end.name)
	}
	m.Single("limbo_worker_repaired_total", "counter", "Records without a home that were removed.", float64(w.Repaired))
	d.late.Write(m, "limbo_late_seconds", "How long after its due time the first attempt of a timer began.")
}
