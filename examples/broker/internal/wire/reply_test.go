package wire

import (
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

func TestAnsweringTwicePanics(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	go func() { _, _ = io.Copy(io.Discard, b) }()
	c := NewServer(kafkatest.NewSilent(), Options{Limits: Config{MaxConnections: 1}}).begin(b)
	r := c.enqueue(1, 10)
	r.Now(kmsg.NewPtrApiVersionsResponse())
	require.PanicsWithValue(t, "broker: request answered twice", func() { r.Now(kmsg.NewPtrApiVersionsResponse()) })
	r = c.enqueue(2, 10)
	r.Drop()
	require.Panics(t, func() { r.Drop() })
	require.Panics(t, func() { r.Now(kmsg.NewPtrApiVersionsResponse()) })
}

// A panic in a handler is counted and ends only its connection.
func TestPanicsAreContained(t *testing.T) {
	limits, err := Config{}.WithDefaults()
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(l, Options{
		Limits: limits,
		Gate:   new(fault.Gate),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handle: func(_ *Conn, req kmsg.Request, r *Reply) {
			if req.Key() == int16(kmsg.Metadata) {
				panic("a bug")
			}
			r.Now(req.ResponseKind())
		},
	})
	s.Serve()
	c, bystander := kafkatest.Dial(t, s.Addr().String()), kafkatest.Dial(t, s.Addr().String())
	c.Send(kmsg.NewPtrMetadataRequest())
	c.Closed()
	require.Equal(t, uint64(1), s.Metrics.Panics.Load())
	bystander.Call(kmsg.NewPtrApiVersionsRequest())
	s.Drain()
	require.NoError(t, s.Finish(kafkatest.Context(t)))
}
