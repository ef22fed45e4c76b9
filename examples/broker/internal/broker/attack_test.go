package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// During an attack by unknown clients, another client's records are acknowledged and fetched in
// order, each within WaitLimit. The time itself depends on the machine, so it is only logged.
func TestOthersAreServedDuringAnAttack(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		start    func(a *attack)
		inEffect func(s *Server) bool
	}{
		"malformed frames":                      {(*attack).malformed, func(s *Server) bool { return s.wire.Metrics.Refused.Load() > 0 }},
		"large frames without an end":           {(*attack).incomplete, func(s *Server) bool { return s.wire.Usage().Inbound == s.cfg.Wire.MaxInboundSum }},
		"answers that the client does not read": {(*attack).unread, func(s *Server) bool { return s.wire.Usage().Outbound >= s.cfg.Wire.MaxOutboundSum }},
		"1000 connections, no request":          {(*attack).silent, func(s *Server) bool { return s.wire.Usage().Open == s.cfg.Wire.MaxConnections }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBroker(t, func(c *Config) {
				c.Wire.MaxInboundSum, c.Wire.MaxOutboundSum, c.Wire.MaxConnections = 32<<20, 16<<20, 256
				c.Wire.FrameTimeout, c.Wire.WriteTimeout = time.Hour, time.Hour // the attack lasts until the test ends
			})
			makeTopic(t, s, "t", 1)
			a := &attack{ctx: kafkatest.Context(t), addr: s.Addr(), large: makeTopic(t, s, "large", 1), started: make(chan struct{})}
			require.Zero(t, produceTo(dial(t, s), a.large, 0, kafkatest.Batch([]string{strings.Repeat("x", 4<<20)})).ErrorCode)
			c := other{t: t, cl: client(t, s, kgo.DefaultProduceTopic("t"), kgo.AllowIdempotentProduceCancellation(),
				kgo.ConsumeTopics("t"), kgo.FetchMaxWait(100*time.Millisecond))}
			c.roundTrip()

			go func() {
				defer close(a.started)
				of.start(a)
			}()
			t.Cleanup(a.end)
			for starting := true; starting; {
				c.roundTrip()
				select {
				case <-a.started:
					starting = false
				default:
				}
			}
			if a.refused != nil {
				t.Logf("%d connections; no more: %v (are there enough open files?)", len(a.conns), a.refused)
			}
			require.Eventually(t, func() bool { return of.inEffect(s) }, kafkatest.WaitLimit, time.Millisecond)
			for range 100 {
				c.roundTrip()
			}
			late := dial(t, s) // a client that connects only now is served, too
			require.Zero(t, produceTo(late, a.large, 0, kafkatest.Batch([]string{"x"})).ErrorCode)
			slices.Sort(c.took)
			n := len(c.took)
			t.Logf("%d records: p50 %v, p99 %v, at most %v", n, c.took[n/2], c.took[n*99/100], c.took[n-1])
		})
	}
}

// other is a client that takes no part in the attack.
type other struct {
	t    *testing.T
	cl   *kgo.Client
	took []time.Duration
}

func (o *other) roundTrip() {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), kafkatest.WaitLimit)
	defer cancel()
	begun, value := time.Now(), fmt.Sprint(len(o.took))
	require.NoError(o.t, o.cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr())
	fetches := o.cl.PollFetches(ctx)
	for fetches.NumRecords() == 0 && ctx.Err() == nil {
		fetches = o.cl.PollFetches(ctx)
	}
	records := fetches.Records()
	require.Len(o.t, records, 1, "%s was not fetched", value)
	require.Equal(o.t, value, string(records[0].Value))
	o.took = append(o.took, time.Since(begun))
}

// attack is many connections that read no answers.
type attack struct {
	ctx     context.Context // ends the attack
	addr    string
	large   *meta.Topic   // has a record of 4 MB
	started chan struct{} // closed when all connections have been made
	conns   []net.Conn    // used only by the attacker until started is closed, as is refused
	refused error         // why another connection failed: most likely too few file descriptors
}

// dial opens a connection and sends bytes on it.
func (a *attack) dial(sent []byte) {
	if a.refused != nil {
		return // the existing connections stay open
	}
	var d net.Dialer
	nc, err := d.DialContext(a.ctx, "tcp", a.addr)
	if err != nil {
		a.refused = err
		few := min(32, len(a.conns)) // file descriptors for the other clients; a full broker has already closed the oldest connections
		a.hangUp(few)
		return
	}
	a.conns = append(a.conns, nc)
	_ = nc.SetDeadline(time.Now().Add(kafkatest.WaitLimit))
	_, _ = nc.Write(sent) // the broker may have closed the connection
}

func (a *attack) hangUp(n int) {
	for _, nc := range a.conns[:n] {
		_ = nc.Close()
	}
	a.conns = a.conns[n:]
}

func (a *attack) end() {
	<-a.started
	a.hangUp(len(a.conns))
}

// malformed sends malformed frames, and waits until the broker closes the connections.
func (a *attack) malformed() {
	for range 3 {
		for _, frame := range kafkatest.HostileFrames() {
			a.dial(frame)
		}
		for _, nc := range a.conns {
			_ = nc.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, nc)
		}
		a.hangUp(len(a.conns))
	}
}

// incomplete sends only the beginnings of frames of the maximum size.
func (a *attack) incomplete() {
	begun := append(binary.BigEndian.AppendUint32(nil, 16<<20), make([]byte, 64)...)
	for range 64 {
		a.dial(begun)
	}
}

// unread requests more bytes than the broker may hold, and reads no answer.
func (a *attack) unread() {
	var asked []byte
	for i := range int32(16) {
		fetch := kafkatest.Fetch(12, a.large, kafkatest.ForEver, 1, 8<<20, kafkatest.At(0, 0, 8<<20))
		asked = append(asked, kafkatest.Formatter.AppendRequest(nil, fetch, i)...)
	}
	for range 16 {
		a.dial(asked)
	}
}

// silent opens connections of which half send nothing, and half a part of a header.
func (a *attack) silent() {
	header := kafkatest.Formatter.AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 1)[:7]
	for i := range 1000 {
		a.dial(header[:7*(i%2)])
	}
}
