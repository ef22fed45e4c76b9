package wire

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
)

// Config holds the limits of everything that clients send and receive: anyone may connect. The zero
// value of a field means its default; see WithDefaults.
type Config struct {
	MaxConnections int // open at once
	MaxPerHost     int // from one host; default: MaxConnections
	MaxInFlight    int // requests read and not answered yet, per connection; then reading pauses
	MaxQueuedBytes int // bytes of those requests, per connection; one request is always accepted

	MaxFrame       int   // bytes of one produce request
	MaxSmallFrame  int   // bytes of any other request
	MaxDiscard     int   // bytes of a produce request that is too large but still gets an error response
	MaxArrays      int   // elements of all arrays of a request, counted before kmsg allocates any
	MaxInboundSum  int64 // bytes of all large frames being read or handled, over all connections
	MaxQueuedSum   int64 // bytes of requests waiting for responses, over all connections; see queuedSize
	MaxOutboundSum int64 // bytes of fetch responses being written, over all connections

	FrameTimeout time.Duration // from a frame's first byte to its last
	IdleTimeout  time.Duration // with no request being read or pending
	WriteTimeout time.Duration // to write a response
	LingerClose  time.Duration // how long a shutdown waits for a client to read its last responses
}

// WithDefaults fills in the zero fields and returns an error for values out of range.
func (c Config) WithDefaults() (Config, error) {
	var b option.Check
	option.Fill(&b, "Wire.MaxConnections", &c.MaxConnections, 1024, 1, 1<<20)
	option.Fill(&b, "Wire.MaxPerHost", &c.MaxPerHost, c.MaxConnections, 1, 1<<20)
	option.Fill(&b, "Wire.MaxInFlight", &c.MaxInFlight, 64, 1, 1<<16)
	option.Fill(&b, "Wire.MaxQueuedBytes", &c.MaxQueuedBytes, 256<<10, 1, 1<<30)
	option.Fill(&b, "Wire.MaxFrame", &c.MaxFrame, 16<<20, 1, 1<<30)
	option.Fill(&b, "Wire.MaxSmallFrame", &c.MaxSmallFrame, 256<<10, 1, 1<<30)
	option.Fill(&b, "Wire.MaxDiscard", &c.MaxDiscard, 128<<20, 1, 1<<31-1)
	option.Fill(&b, "Wire.MaxArrays", &c.MaxArrays, 16<<10, 1, 1<<24)
	option.Fill(&b, "Wire.MaxInboundSum", &c.MaxInboundSum, 256<<20, int64(c.MaxFrame), 1<<50)
	option.Fill(&b, "Wire.MaxQueuedSum", &c.MaxQueuedSum, 32<<20, 1, 1<<50)
	option.Fill(&b, "Wire.MaxOutboundSum", &c.MaxOutboundSum, 256<<20, 1, 1<<50)
	option.Fill(&b, "Wire.FrameTimeout", &c.FrameTimeout, 10*time.Second, 1, 24*time.Hour)
	option.Fill(&b, "Wire.IdleTimeout", &c.IdleTimeout, 10*time.Minute, 1, 24*time.Hour)
	option.Fill(&b, "Wire.WriteTimeout", &c.WriteTimeout, 20*time.Second, 1, 24*time.Hour)
	option.Fill(&b, "Wire.LingerClose", &c.LingerClose, 250*time.Millisecond, 1, time.Minute)
	return c, b.Err
}

// frameLimit returns the maximum size of a frame with this key. Only produce carries records.
func (c *Config) frameLimit(key int16) int {
	if key == int16(kmsg.Produce) {
		return c.MaxFrame
	}
	return min(c.MaxSmallFrame, c.MaxFrame)
}
