// Package replication is what a broker does of itself for its replicas: it fetches from
// those who lead (follower.go), and looks after the in-sync sets of what it leads
// (insync.go).
package replication

import (
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// Broker is what it works with. All fields must be set.
type Broker struct {
	ID         int32
	Gate       *fault.Gate
	Links      *fault.Links
	Partitions *replica.Set
	Controller *meta.Controller
	Image      func() *meta.Image     // what the broker knows of the cluster
	Changed    func() <-chan struct{} // returns what is closed when its roles next change

	MaxFetch  int                 // bytes of records to ask for
	MaxAnswer int                 // bytes of an answer, at most
	OnLost    func(records int64) // is called with what was cut off below the high watermark

	Uptime    func() time.Duration // the clock by which others are judged
	Lag       time.Duration        // a follower that is behind for longer is not in sync
	Rejoining <-chan struct{}      // receives when a follower may be in sync again
}
