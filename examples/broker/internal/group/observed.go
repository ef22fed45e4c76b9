package group

import (
	"github.com/seed-782fa212/limbo/observe"
)

// Observe adds the coordinator's purgatories and sessions.
func (co *Coordinator) Observe(add func(what string, s observe.Source)) {
	add(": joins of groups", observe.Purgatory(co.joins, nil))
	add(": syncs of groups", observe.Purgatory(co.syncs, nil))
	add(": members of groups", observe.Wheel(co.sessions))
}
