package wire

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// serving starts a server.
func serving(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Limits.LingerClose == 0 {
		o.Limits.LingerClose = 10 * time.Millisecond
	}
	limits, err := o.Limits.WithDefaults()
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.Limits, o.Logger = limits, slog.New(slog.NewTextHandler(io.Discard, nil))
	if o.Gate == nil {
		o.Gate = new(fault.Gate)
	}
	s := NewServer(l, o)
	s.Serve()
	return s
}

// finished shuts the server down and requires that all responses were sent and released.
func finished(t *testing.T, s *Server) {
	t.Helper()
	s.Drain()
	require.NoError(t, s.Finish(kafkatest.Context(t)))
	require.Zero(t, s.Usage())
}

func ask() kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	return req
}

// saying returns a response that contains text.
func saying(text string) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version, resp.ClusterID = ask().GetVersion(), &text
	return resp
}

func metadata(c *kafkatest.Conn) string {
	c.T.Helper()
	return *c.Receive(ask()).(*kmsg.MetadataResponse).ClusterID
}

// answerTo returns the text for the request with this correlation id: up to 200 kB, because the
// kernel would take shorter responses at once.
func answerTo(correlation int32) string {
	long := 0
	if correlation%5 == 0 {
		long = int(correlation) * 7919 % 200_000
	}
	return fmt.Sprintf("%d %s", correlation, strings.Repeat("x", long))
}

// oftenShut is a gate that is closed at every fifth call, and opens at once.
type oftenShut struct{ asked atomic.Int64 }

func (g *oftenShut) Open() bool { return g.asked.Add(1)%5 != 0 }

func (g *oftenShut) Pass(ctx context.Context) error {
	runtime.Gosched()
	return ctx.Err()
}

// Responses arrive in the order of their requests, each once and whole, whichever goroutine sends
// them: the reader, after the handler; the goroutine that completes a request right after its
// event; or a temporary one. Every fifth send finds the gate closed.
func TestAnswersInOrder(t *testing.T) {
	const conns, requests = 8, 300
	waiting := make(chan *Reply, conns*requests)
	s := serving(t, Options{Gate: new(oftenShut), Handle: func(_ *Conn, _ kmsg.Request, r *Reply) {
		if r.correlation%3 == 0 {
			r.Now(saying(answerTo(r.correlation)))
			return
		}
		waiting <- r
	}})
	var answerers, clients sync.WaitGroup
	for i := range 4 {
		answerers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			var held []*Reply
			answer := func() {
				random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				for _, r := range held {
					var woken time.Time
					if random.IntN(2) == 0 {
						woken = time.Now()
					}
					r.AnswerWoken(func() kmsg.Response { return saying(answerTo(r.correlation)) }, woken, true)
				}
				held = held[:0]
			}
			for {
				select {
				case r, ok := <-waiting:
					if !ok {
						return
					}
					if held = append(held, r); len(held) == 5 {
						answer()
					}
				case <-time.After(time.Millisecond): // no more may come before these are answered
					answer()
				}
			}
		})
	}
	for range conns {
		c := kafkatest.Dial(t, s.Addr().String())
		clients.Go(func() {
			for range requests {
				c.Send(ask())
			}
		})
		clients.Go(func() {
			for i := range int32(requests) {
				got := metadata(c)
				if want := answerTo(i + 1); got != want {
					t.Errorf("answer %d is %d bytes, %.20q, and not %d, %.20q", i+1, len(got), got, len(want), want)
					return
				}
			}
		})
	}
	clients.Wait()
	close(waiting)
	answerers.Wait()
	finished(t, s)
	require.EqualValues(t, conns*requests, s.Metrics.Answers.Load())
	require.Zero(t, s.Metrics.Panics.Load())
}

// A goroutine that answers is not held up by a client that does not read. This client reads only
// after the answer, and the response is larger than any socket buffer.
func TestAnsweringGoroutineIsNotDelayed(t *testing.T) {
	waiting := make(chan *Reply)
	s := serving(t, Options{Handle: func(_ *Conn, _ kmsg.Request, r *Reply) { waiting <- r }})
	c := kafkatest.Dial(t, s.Addr().String())
	c.Send(ask())
	require.NoError(t, c.NC.(*net.TCPConn).SetReadBuffer(64<<10))
	r, large := <-waiting, strings.Repeat("0123456789", 2<<20)
	r.AnswerWoken(func() kmsg.Response { return saying(large) }, time.Now().Add(time.Hour), true) // recent, always
	require.True(t, metadata(c) == large)
	finished(t, s)
	require.Zero(t, cap(r.conn.out.buf), "its memory is given back")
}

// A goroutine that answers is not held up by the client's other requests: it builds and sends only
// its own response; another goroutine sends those that are ready behind it.
func TestAnsweringStartsNoGoroutines(t *testing.T) {
	waiting, handled, returned := make(chan *Reply, 1), make(chan bool), make(chan bool)
	s := serving(t, Options{Handle: func(_ *Conn, _ kmsg.Request, r *Reply) {
		if r.correlation == 1 {
			waiting <- r
			return
		}
		r.Answer(func() kmsg.Response {
			select {
			case <-returned:
				return saying("behind it")
			case <-time.After(kafkatest.WaitLimit / 2):
				return saying("by who answers")
			}
		})
		handled <- true
	}})
	c := kafkatest.Dial(t, s.Addr().String())
	c.Send(ask(), ask(), ask())
	<-handled
	<-handled
	(<-waiting).AnswerWoken(func() kmsg.Response { return saying("it") }, time.Now().Add(time.Hour), true)
	close(returned)
	for _, want := range []string{"it", "behind it", "behind it"} {
		require.Equal(t, want, metadata(c))
	}
	finished(t, s)
}

// If a handler answers and continues, Flush sends the response before that.
func TestFlush(t *testing.T) {
	goOn := make(chan bool)
	s := serving(t, Options{Handle: func(c *Conn, _ kmsg.Request, r *Reply) {
		r.Now(saying("done"))
		c.Flush()
		<-goOn
	}})
	c := kafkatest.Dial(t, s.Addr().String())
	c.Send(ask())
	require.Equal(t, "done", metadata(c))
	close(goOn)
	finished(t, s)
}

// waitedAt is a gate that reports each goroutine that waits at it.
type waitedAt struct {
	fault.Gate
	waits chan bool
}

func (g *waitedAt) Pass(ctx context.Context) error {
	if !g.Open() {
		g.waits <- true
	}
	return g.Gate.Pass(ctx)
}

// A client that never received a byte is reset at the end, even if a closed gate held up a response
// to it: see Conn.resets.
func TestHeldUpAnswersAreNone(t *testing.T) {
	gate := &waitedAt{waits: make(chan bool)}
	waiting := make(chan *Reply)
	s := serving(t, Options{Gate: gate, Handle: func(_ *Conn, _ kmsg.Request, r *Reply) { waiting <- r }})
	c := kafkatest.Dial(t, s.Addr().String())
	c.Send(ask())
	r := <-waiting
	gate.Pause()
	r.AnswerWoken(func() kmsg.Response { return saying("") }, time.Now().Add(time.Hour), true)
	<-gate.waits
	s.Drain()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Finish(ctx), context.Canceled)
	_, err := io.Copy(io.Discard, c.NC)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Zero(t, s.Usage())
}

// If building a response exits the goroutine, only the connection ends.
func TestAnswersThatExit(t *testing.T) {
	waiting := make(chan *Reply)
	s := serving(t, Options{Handle: func(_ *Conn, _ kmsg.Request, r *Reply) { waiting <- r }})
	c := kafkatest.Dial(t, s.Addr().String())
	c.Send(ask())
	(<-waiting).Answer(func() kmsg.Response { runtime.Goexit(); return nil })
	c.Closed()
	finished(t, s)
}

// A drain waits for a response that is being sent, and for those behind it.
func TestDrainWaitsForSends(t *testing.T) {
	waiting := make(chan *Reply, 2)
	s := serving(t, Options{Handle: func(_ *Conn, _ kmsg.Request, r *Reply) { waiting <- r }})
	c := kafkatest.Dial(t, s.Addr().String())
	c.Send(ask(), ask())
	first, second := <-waiting, <-waiting
	require.NoError(t, c.NC.(*net.TCPConn).SetReadBuffer(64<<10))
	large := strings.Repeat("0123456789", 2<<20)
	first.Now(saying(large))
	s.Drain()
	done := make(chan error)
	go func() { done <- s.Finish(kafkatest.Context(t)) }()
	second.AnswerWoken(func() kmsg.Response { return saying("the last") }, time.Now(), true)
	require.True(t, metadata(c) == large)
	require.Equal(t, "the last", metadata(c))
	c.Closed()
	require.NoError(t, <-done)
	require.Zero(t, s.Usage())
}

func TestAConnectionIsOneGoroutine(t *testing.T) {
	const conns, requests = 20, 30
	waiting := make(chan *Reply, conns*requests)
	s := serving(t, Options{Handle: func(_ *Conn, _ kmsg.Request, r *Reply) { waiting <- r }})
	before := runtime.NumGoroutine()
	var clients []*kafkatest.Conn
	for range conns {
		c := kafkatest.Dial(t, s.Addr().String())
		for range requests {
			c.Send(ask())
		}
		clients = append(clients, c)
	}
	var replies []*Reply
	for range conns * requests {
		replies = append(replies, <-waiting)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+conns)
	for _, r := range replies {
		r.Now(saying(""))
	}
	for _, c := range clients {
		for range requests {
			metadata(c)
		}
	}
	finished(t, s)
}

// A panic while a response is built ends only its connection, not the goroutine that answered.
func TestAnswersThatPanic(t *testing.T) {
	for _, woken := range []time.Time{{}, time.Now().Add(time.Hour)} {
		waiting := make(chan *Reply)
		s := serving(t, Options{Handle: func(_ *Conn, _ kmsg.Request, r *Reply) { waiting <- r }})
		c, bystander := kafkatest.Dial(t, s.Addr().String()), kafkatest.Dial(t, s.Addr().String())
		c.Send(ask())
		r := <-waiting
		r.AnswerWoken(func() kmsg.Response {
			r.conn.ChargeOutbound(1000)
			panic("a bug")
		}, woken, true)
		c.Closed()
		require.EqualValues(t, 1, s.Metrics.Panics.Load())
		bystander.Send(ask())
		(<-waiting).Now(saying("well"))
		require.Equal(t, "well", metadata(bystander))
		finished(t, s)
	}
}

// deadlined is a connection that records its last write deadline.
type deadlined struct {
	*net.TCPConn
	last time.Time
	set  int
}

func (c *deadlined) SetWriteDeadline(t time.Time) error {
	c.last, c.set = t, c.set+1
	return c.TCPConn.SetWriteDeadline(t)
}

// A write that waits for the network has a deadline and clears it afterwards: otherwise no later
// response could be sent at once.
func TestDeadlinesOfWritesEnd(t *testing.T) {
	s := serving(t, Options{})
	nc, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer func() { _ = nc.Close() }()
	conn := &deadlined{TCPConn: nc.(*net.TCPConn)}
	c := newConn(s, conn)
	c.out.buf = []byte("waits")
	require.NoError(t, c.write())
	require.Positive(t, conn.set)
	require.Zero(t, conn.last)
	require.NoError(t, c.tryWrite())
	finished(t, s)
}

// Concurrent connections never exceed the limit for the bytes of waiting requests.
func TestQueuedSumIsNeverExceeded(t *testing.T) {
	s := serving(t, Options{Limits: Config{MaxQueuedSum: 1000}})
	var held atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if s.chargeQueued(7) {
					held.Add(7)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1000/7*7, held.Load())
	require.Equal(t, held.Load(), s.Usage().Queued)
	s.queuedSum.Store(0)
	finished(t, s)
}
