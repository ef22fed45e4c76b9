// Package replication runs a broker's background replication: it fetches from partition leaders
// (follower.go) and maintains the in-sync sets of the partitions that the broker leads (insync.go).
package replication

import (
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// Broker is the broker that replicates. All fields must be set.
type Broker struct {
	ID         int32
	Gate       *fault.Gate
	Links      *fault.Links
	Partitions *replica.Set
	Controller *meta.Controller
	Image      func() *meta.Image     // the broker's latest image
	Changed    func() <-chan struct{} // returns a channel that is closed when its roles, or the brokers it knows of, next change

	MaxFetch  int                 // bytes of records to ask for
	MaxAnswer int                 // maximum bytes of a response
	OnLost    func(records int64) // called with the number of records truncated below the high watermark

	Uptime    func() time.Duration // measures how long other brokers lag
	Lag       time.Duration        // a follower that is behind for longer is removed from the in-sync set
	Rejoining <-chan struct{}      // receives when a follower may rejoin an in-sync set
}
