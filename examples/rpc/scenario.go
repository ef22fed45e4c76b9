package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
	"github.com/seed-782fa212/limbo/observe"
)

// runner makes calls through clients, and records the outcome of each.
type runner struct {
	*selfcheck.Progress
	on      network.Network
	lead    time.Duration // see leadTimes
	last    bool          // whether this is the last try
	sum     summary
	table   *calls.Table[uint64, uint64]
	waiting sync.WaitGroup // goroutines in Do

	early, wrong, ended     atomic.Int64
	answered, expired       atomic.Int64
	cancelled, failed, lost atomic.Int64
	failedOther             atomic.Int64
	results                 []atomic.Int32 // by call: how many times it has ended
	next                    atomic.Int64
}

// plannedCall describes one call.
type plannedCall struct {
	frame
	timeout time.Duration
	cancel  time.Duration // after which its caller gives up; 0: never
}

// leadTimes returns, for each try, how long no call ends, so that all of them are in flight at
// once: several times as long as it takes to make them. Timeouts start when a call is made, so the
// lead has to be guessed in advance; on a busy machine it may be too short, and then the next try
// has twice the time.
func leadTimes(inFlight int) func(try int) time.Duration {
	return func(try int) time.Duration {
		return (2*time.Second + time.Duration(inFlight)*10*time.Microsecond) << try
	}
}

const (
	tries = 5

	spread = 4 * time.Second // after the lead, replies come, calls expire and callers give up within this time
	jitter = 20 * time.Millisecond
)

// planCall chooses a random call. No call ends before the lead has passed.
func planCall(rng *rand.Rand, id uint64, lead time.Duration) plannedCall {
	within := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	p := plannedCall{frame: frame{id: id, payload: rng.Uint64()}, timeout: lead + time.Minute}
	p.delay = (lead + jitter + within(spread)).Truncate(time.Millisecond)
	switch n := rng.IntN(100); {
	case n < 5:
		p.action, p.timeout = ignore, lead+within(spread)
	case n < 10: // its reply comes at about its timeout
		p.timeout = p.delay + within(2*jitter) - jitter
	case n < 15:
		p.action = answerTwice
	}
	return p
}

func runScenario(ctx context.Context, on network.Network, inFlight int, seed uint64, lead func(try int) time.Duration, page *livepage.Page, out io.Writer) (*summary, error) {
	before := runtime.NumGoroutine()
	progress := selfcheck.NewProgress(out)
	if err := page.Start(progress.Printf); err != nil {
		return nil, err
	}
	var p *runner
	var err error
	for try := range tries {
		p = &runner{Progress: progress, on: on, lead: lead(try), last: try == tries-1, results: make([]atomic.Int32, inFlight+inFlight/10+inFlight/100)}
		if err = p.try(ctx, inFlight, seed, page.Registry()); !errors.Is(err, errStalled) {
			break
		}
		p.Printf("this machine took longer than %v to make the calls: again, with twice the time", p.lead)
	}
	if err = errors.Join(err, page.Stop()); err != nil {
		return nil, err
	}
	p.summarize(before)
	return &p.sum, nil
}

// errStalled is returned by a try without a result: the lead passed before all calls were made.
var errStalled = errors.New("stalled")

// try runs the scenario once. Only the recorded outcomes remain.
func (p *runner) try(ctx context.Context, inFlight int, seed uint64, observed *observe.Registry) error {
	s, err := listen(p.on)
	if err != nil {
		return err
	}
	p.table, err = calls.New[uint64, uint64](calls.Options{Name: "rpc client"})
	if err != nil {
		return errors.Join(err, s.shutdown(context.Background()))
	}
	unobserve, err := livepage.Add(observed, "rpc client", observe.Calls(p.table, nil))
	if err == nil {
		defer unobserve()
		err = p.scenario(ctx, s, inFlight, seed)
	}
	ended := errors.Join(p.table.Shutdown(context.Background()), s.shutdown(context.Background()))
	p.waiting.Wait()
	if ended != nil { // another try would not help
		return ended
	}
	return err
}

// scenario runs all steps, in order.
func (p *runner) scenario(ctx context.Context, s *server, inFlight int, seed uint64) error {
	addr := s.listener.Addr().String()
	primary, err := dial(p.on, addr, p.table)
	if err != nil {
		return err
	}
	defer primary.shutdown()
	lost, err := dial(p.on, addr, p.table)
	if err != nil {
		return err
	}
	defer lost.shutdown()
	rng := rand.New(rand.NewPCG(seed, 0))
	began, lead := time.Now(), p.lead
	p.Printf("%d calls are made, of which none ends in the first %v", inFlight+inFlight/10, lead)
	for n := range inFlight { // a goroutine waits for one call in ten
		call := planCall(rng, uint64(n), lead)
		if n%100 == 0 {
			call.cancel = lead + time.Duration(rng.Int64N(int64(time.Second)))
		}
		p.start(primary, call, n%10 == 0, true)
	}
	for n := range inFlight / 10 { // these ids are in use on the other connection too
		p.start(lost, planCall(rng, uint64(n), lead), n%10 == 0, false)
	}
	p.sum.wantInFlight = int(p.next.Load())
	for p.sum.InFlight < p.sum.wantInFlight { // until their goroutines have started
		p.sum.InFlight, p.sum.onOne = p.table.Stats().Pending, primary.calls.Len()
		if time.Since(began) >= lead { // some may have ended
			if !p.last {
				return errStalled
			}
			break // the summary reports the number
		}
		if err := selfcheck.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	p.Printf("%d are in flight at once, %d of them on one connection", p.sum.InFlight, p.sum.onOne)
	stopBar := p.Bar(func() (float64, string) {
		total := len(p.results)
		return float64(p.ended.Load()) / float64(total), fmt.Sprintf("%d of %d calls have ended", p.ended.Load(), total)
	})
	defer stopBar()

	if err := selfcheck.Sleep(ctx, time.Until(began.Add(lead+500*time.Millisecond))); err != nil {
		return err
	}
	remaining := primary.calls.Len()
	for !s.drop(lost.LocalAddr()) { // the server may not have accepted it yet
		if err := selfcheck.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	lost.running.Wait()
	p.Printf("a connection is lost and ends its %d calls; the other one has %d", lost.lost, remaining)
	if _, err := lost.calls.Do(ctx, 1, time.Minute, func() error { return errors.New("sent on a lost connection") }); !errors.As(err, new(*lostError)) {
		p.sum.problems.Add("a call on the lost connection was told: %v", err)
	}
	again, err := dial(p.on, addr, p.table)
	if err != nil {
		return err
	}
	defer again.shutdown()
	for n := range inFlight / 100 { // with the ids of calls that failed
		p.start(again, plannedCall{frame: frame{id: uint64(n), payload: rng.Uint64()}, timeout: time.Minute}, true, true)
	}

	for p.table.Stats().Pending > 0 {
		if err := selfcheck.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	p.waiting.Wait()
	stopBar()
	p.Printf("every call has ended")
	// The remaining replies, late and duplicate ones, come within the longest delay.
	if err := selfcheck.Sleep(ctx, time.Until(began.Add(lead+spread+500*time.Millisecond))); err != nil {
		return err
	}
	for _, c := range []*client{primary, lost, again} {
		c.shutdown()
		p.sum.Read += c.read.Load()
		p.sum.matched += c.matched.Load()
	}
	return nil
}

// start makes a call. If wait is true, a goroutine waits for it.
func (p *runner) start(c *client, call plannedCall, wait, intact bool) {
	n := p.next.Add(1) - 1
	began := time.Now()
	send := func() error { return c.send(call.frame) }
	done := func(word uint64, err error) {
		switch {
		case err == nil:
			p.answered.Add(1)
			if word != ^call.payload {
				p.wrong.Add(1)
			}
		case errors.Is(err, calls.ErrExpired):
			p.expired.Add(1)
			if time.Since(began) < call.timeout {
				p.early.Add(1)
			}
		case errors.Is(err, context.Canceled):
			p.cancelled.Add(1)
		default:
			p.failed.Add(1)
			if errors.As(err, new(*lostError)) {
				p.lost.Add(1)
			}
			if intact {
				p.failedOther.Add(1)
			}
		}
		if p.results[n].Add(1) == 1 {
			p.ended.Add(1)
		}
	}
	if !wait {
		if err := c.calls.Go(call.id, call.timeout, send, done); err != nil {
			done(0, err)
		}
		return
	}
	p.waiting.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if call.cancel > 0 {
			defer time.AfterFunc(call.cancel, cancel).Stop()
		}
		done(c.calls.Do(ctx, call.id, call.timeout, send))
	})
}
