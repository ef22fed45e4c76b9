package cluster

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
)

// recent is the number of controller decisions that a status shows.
const recent = 10

// WriteStatus writes the brokers' state, the partition leaders and the controller's recent
// decisions, for a person to read.
func (c *Cluster) WriteStatus(out io.Writer) {
	img := c.brokers.Controller.Image()
	_, _ = fmt.Fprintf(out, "%d goroutines\n", runtime.NumGoroutine())
	for _, n := range c.brokers.Nodes {
		s := n.Server()
		if s == nil {
			_, _ = fmt.Fprintf(out, "broker %d at %s: stopped\n", n.ID, n.Addr())
			continue
		}
		var st metric.Stats
		s.AddTo(&st)
		waiting, parts := s.Waiting(), []string{}
		for _, kind := range slices.Sorted(maps.Keys(waiting)) {
			parts = append(parts, fmt.Sprintf("%s %d", kind, waiting[kind]))
		}
		_, _ = fmt.Fprintf(out, "broker %d at %s: alive %v; leads %d partitions, keeps %d KiB; %d connections, %d fetch sessions, %d groups; waiting: %s\n",
			n.ID, n.Addr(), img.IsLive(n.ID), st.Leads, st.LogBytes>>10, st.Connections, st.FetchSessions, st.Groups, strings.Join(parts, ", "))
	}
	for _, p := range c.Partitions() {
		_, _ = fmt.Fprintf(out, "%s/%d: leader %d (epoch %d), in sync %v of %v\n", p.Topic, p.Index, p.Leader, p.Epoch, p.InSync, p.Replicas)
	}
	decisions := c.brokers.Controller.Recent()
	for _, d := range decisions[max(0, len(decisions)-recent):] {
		_, _ = fmt.Fprintf(out, "%s ago: %s: %d leaders, %d in-sync sets\n", time.Since(d.At).Round(time.Millisecond), d.Cause, d.Leaders, d.InSyncSets)
	}
}
