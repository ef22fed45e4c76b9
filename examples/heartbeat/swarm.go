package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

// client is one connection of the swarm and its outcome. Only its own goroutines write it; it is
// read when they have ended.
type client struct {
	silent    bool
	lastSend  time.Time     // before the write of the last line that was answered
	longest   time.Duration // its longest silence while it was supposed to talk
	droppedAt time.Time     // zero: the server did not drop it
	err       error         // any error except a drop
}

// swarm is the clients and their counters.
type swarm struct {
	clients          []client
	connected, drops atomic.Int64
}

const (
	dialsAtOnce = 128

	// dropLimit bounds the wait for the server to drop a silent client, after the client's idle
	// limit.
	dropLimit = 20 * time.Second
)

// drive runs the swarm against s and checks the outcome of each client, which runs for duration
// from when it connects.
func drive(ctx context.Context, s *server, n int, silent float64, duration time.Duration, out io.Writer) bool {
	w := &swarm{clients: make([]client, n)}
	gate := semaphore.NewWeighted(dialsAtOnce)
	var all sync.WaitGroup
	for i := range w.clients {
		c := &w.clients[i]
		c.silent = float64(i) < silent*float64(n)
		all.Go(func() { w.live(ctx, s, c, duration, gate) })
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()

	fmt.Fprintf(out, "%8s %10s %10s %10s %10s %10s %10s\n", "seconds", "connected", "dropped", "lines", "pending", "wake-ups", "goroutines")
	start := time.Now()
	row := func() {
		st := s.deadline.Stats()
		fmt.Fprintf(out, "%8.1f %10d %10d %10d %10d %10d %10d\n", time.Since(start).Seconds(),
			w.connected.Load(), s.dropped.Load(), s.lines.Load(), st.Pending, st.Wakeups, runtime.NumGoroutine())
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			row()
			continue
		case <-ended:
		}
		row()
		return w.checkResults(s.idle, out)
	}
}

// live runs one client: it talks about every quarter of the idle limit. A silent client stops after
// a while, and waits until it is dropped.
func (w *swarm) live(ctx context.Context, s *server, c *client, duration time.Duration, gate *semaphore.Weighted) {
	if c.err = gate.Acquire(ctx, 1); c.err != nil {
		return
	}
	c.lastSend = time.Now() // the server's clock starts later
	conn, err := s.on.DialContext(ctx, "tcp", s.addr())
	gate.Release(1)
	if err != nil {
		c.err = fmt.Errorf("dial: %w", err)
		return
	}
	defer conn.Close()
	w.connected.Add(1)
	defer w.connected.Add(-1)

	talks := duration
	if c.silent {
		talks = rand.N(duration - 2*s.idle)
	}
	until := time.Now().Add(talks)
	reads := bufio.NewReader(conn)
	for time.Now().Before(until) && ctx.Err() == nil {
		sent := time.Now()
		c.longest = max(c.longest, sent.Sub(c.lastSend))
		if _, err := io.WriteString(conn, "ping\n"); err != nil {
			w.lost(c, err)
			return
		}
		if line, err := reads.ReadString('\n'); err != nil {
			w.lost(c, err)
			return
		} else if line != "ping\n" {
			c.err = fmt.Errorf("sent ping, was answered %q", line)
			return
		}
		c.lastSend = sent
		wait(ctx, min(s.idle/8+rand.N(s.idle/4), time.Until(until)))
	}
	if !c.silent {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(s.idle + dropLimit))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = reads.ReadByte()
	w.lost(c, err)
}

// lost records how a connection ended that the client did not end.
func (w *swarm) lost(c *client, err error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // not dropped, or the run was ended
	case err == nil:
		c.err = errors.New("was sent what it did not ask for")
	default:
		c.droppedAt = time.Now()
		w.drops.Add(1)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// checkResults reports whether the server behaved correctly. A drop is early if it comes sooner than
// the idle limit after the client began to send the last line that was answered: the server can
// only have read that line later, so its limit ended later still. An unanswered line does not
// count, because the server may have had no time to read it. If this machine kept a client from
// sending for an idle limit, the client may be dropped at any time after that.
func (w *swarm) checkResults(idle time.Duration, out io.Writer) bool {
	var silent, dropped, kept, early, talkers, stalled, talkersDropped, failed int
	var firstErr error
	var late, latest time.Duration
	for i := range w.clients {
		c := &w.clients[i]
		wasDropped := !c.droppedAt.IsZero()
		after := c.droppedAt.Sub(c.lastSend)
		switch {
		case c.err != nil:
			failed++
			if firstErr == nil {
				firstErr = c.err
			}
		case c.silent:
			silent++
			if !wasDropped {
				kept++
				break
			}
			dropped++
			late += after - idle
			latest = max(latest, after-idle)
		default:
			talkers++
			if !wasDropped {
				break
			}
			if max(c.longest, after) >= idle {
				stalled++ // this machine kept it from talking
			} else {
				talkersDropped++
			}
		}
		if wasDropped && max(c.longest, after) < idle {
			early++
		}
	}
	var checks selfcheck.Checks
	checks.Add(kept == 0 && early == 0, "silent clients", "%d: dropped %d, not dropped %d; early %d; late by %v on average, %v at most",
		silent, dropped, kept, early, (late / time.Duration(max(dropped, 1))).Round(time.Microsecond), latest.Round(time.Microsecond))
	checks.Add(talkersDropped == 0, "talking clients", "%d: dropped %d; kept from talking by this machine, and so dropped, %d", talkers, talkersDropped, stalled)
	reason := ""
	if failed > 0 {
		reason = fmt.Sprintf(", one by: %v", firstErr)
	}
	checks.Add(failed == 0, "failed clients", "%d%s", failed, reason)
	checks.Print(out)
	return checks.OK()
}
