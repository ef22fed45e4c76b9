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
)

// play has a client make calls, and notes what becomes of each.
type player struct {
	sum     summary
	out     io.Writer
	table   *calls.Table[uint64, uint64]
	calling sync.WaitGroup // Do

	early, wrong, ended     atomic.Int64
	answered, expired       atomic.Int64
	cancelled, failed, lost atomic.Int64
	failedElsewhere         atomic.Int64
	results                 []atomic.Int32 // by call: how often it has ended
	next                    atomic.Int64
}

// plan is what one call is to be.
type plan struct {
	frame
	timeout time.Duration
	cancel  time.Duration // after which its caller goes away; 0: it does not
}

// planned draws what a call is to be. Nothing ends in the first 1.9 s but by a caller that
// goes away, so that all calls are in flight at once.
func planned(rng *rand.Rand, id uint64) plan {
	p := plan{frame: frame{id: id, word: rng.Uint64()}, timeout: time.Minute}
	p.delay = 2*time.Second + time.Duration(rng.Int64N(4000))*time.Millisecond
	switch n := rng.IntN(100); {
	case n < 5:
		p.what, p.timeout = ignore, 3*time.Second+time.Duration(rng.Int64N(4000))*time.Millisecond
	case n < 10: // its reply comes about when its time is up
		p.timeout = p.delay + time.Duration(rng.Int64N(40)-20)*time.Millisecond
	case n < 15:
		p.what = answerTwice
	}
	return p
}

func play(ctx context.Context, inFlight int, seed uint64, out io.Writer) (*summary, error) {
	before := runtime.NumGoroutine()
	s, err := listen()
	if err != nil {
		return nil, err
	}
	p := &player{out: out, results: make([]atomic.Int32, inFlight+inFlight/10+inFlight/100)}
	if p.table, err = calls.New[uint64, uint64](calls.Options{Name: "rpc client"}); err != nil {
		return nil, err
	}
	err = errors.Join(p.scenes(ctx, s, inFlight, seed), p.table.Shutdown(context.Background()), s.shutdown(context.Background()))
	if err != nil {
		return nil, err
	}
	p.summarize(before)
	return &p.sum, nil
}

// scenes are what happens, in order.
func (p *player) scenes(ctx context.Context, s *server, inFlight int, seed uint64) error {
	addr := s.listener.Addr().String()
	busy, err := dial(addr, p.table)
	if err != nil {
		return err
	}
	defer busy.shutdown()
	shaky, err := dial(addr, p.table)
	if err != nil {
		return err
	}
	defer shaky.shutdown()
	rng := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	for n := range inFlight { // one in ten has a goroutine that waits for it
		call := planned(rng, uint64(n))
		if n%100 == 0 {
			call.cancel = time.Second + time.Duration(rng.Int64N(1000))*time.Millisecond
		}
		p.start(busy, call, n%10 == 0, true)
	}
	for n := range inFlight / 10 { // the ids are those of other calls on the other connection
		p.start(shaky, planned(rng, uint64(n)), n%10 == 0, false)
	}
	p.sum.InFlight = p.table.Stats().Waiting
	fmt.Fprintf(p.out, "%6.2f s  %d calls are in flight, %d of them with a goroutine\n", time.Since(began).Seconds(), p.sum.InFlight, inFlight/10+inFlight/100)

	if err := pause(ctx, time.Until(began.Add(2500*time.Millisecond))); err != nil {
		return err
	}
	elsewhere := busy.calls.Len()
	s.drop(shaky.LocalAddr())
	shaky.running.Wait()
	fmt.Fprintf(p.out, "%6.2f s  a connection is lost, and ends its %d calls; another one has %d\n",
		time.Since(began).Seconds(), shaky.lost, elsewhere)
	if _, err := shaky.calls.Do(ctx, 1, time.Minute, func() error { return errors.New("sent on a lost connection") }); !errors.As(err, new(*lostError)) {
		p.sum.problem("a call on the lost connection was told: %v", err)
	}
	again, err := dial(addr, p.table)
	if err != nil {
		return err
	}
	defer again.shutdown()
	for n := range inFlight / 100 { // with the ids of calls that failed
		p.start(again, plan{frame: frame{id: uint64(n), word: rng.Uint64()}, timeout: time.Minute}, true, true)
	}

	for p.table.Stats().Waiting > 0 {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	p.calling.Wait()
	fmt.Fprintf(p.out, "%6.2f s  every call has ended\n", time.Since(began).Seconds())
	// What replies are still to come, late and second ones, come within the longest delay.
	if err := pause(ctx, time.Until(began.Add(6500*time.Millisecond))); err != nil {
		return err
	}
	for _, c := range []*client{busy, shaky, again} {
		c.shutdown()
		p.sum.Read += c.read.Load()
		p.sum.matched += c.matched.Load()
	}
	return nil
}

// start makes a call, of which a goroutine waits or none does.
func (p *player) start(c *client, call plan, wait, stays bool) {
	n := p.next.Add(1) - 1
	began := time.Now()
	send := func() error { return c.send(call.frame) }
	done := func(word uint64, err error) {
		switch {
		case err == nil:
			p.answered.Add(1)
			if word != ^call.word {
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
			if stays {
				p.failedElsewhere.Add(1)
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
	p.calling.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if call.cancel > 0 {
			defer time.AfterFunc(call.cancel, cancel).Stop()
		}
		done(c.calls.Do(ctx, call.id, call.timeout, send))
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
