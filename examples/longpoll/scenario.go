package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
	"github.com/seed-782fa212/limbo/internal/openfiles"
)

// run is the self-checking example: nodes, a bus, and many polling clients, while events are
// published, a node dies and a broker dies.
type run struct {
	options
	*selfcheck.Progress
	bus     *cluster.Cluster // nil: a real one
	nodes   []*node
	targets []target
	pollers *pollers
	rng     *rand.Rand
	sum     summary

	published map[string]int   // events by room
	confirmed map[string][]int // the events that a node confirmed as published
}

// options configures a run.
type options struct {
	polls, nodes      int
	faultFree, faults time.Duration // how long to publish without faults, and after each fault
	rate              int           // events a second
	brokers           []string      // of a real bus; empty: one in this process
	topic             string
	seed              uint64
	logger            *slog.Logger // of the brokers in this process
	page              *livepage.Page
}

// stepTimeout is how long any step may take on a machine that is busy with something else.
const stepTimeout = time.Minute

func runScenario(ctx context.Context, o options, out io.Writer) (*summary, error) {
	before := runtime.NumGoroutine()
	p := &run{options: o, Progress: selfcheck.NewProgress(out), rng: rand.New(rand.NewPCG(o.seed, 1)), published: map[string]int{}, confirmed: map[string][]int{}}
	err := p.open(ctx)
	if err == nil {
		err = p.scenario(ctx)
	}
	if err = errors.Join(err, p.close()); err != nil {
		return nil, err
	}
	p.summarize(before)
	return &p.sum, nil
}

func (p *run) open(ctx context.Context) (err error) {
	if len(p.brokers) == 0 {
		var cfg cluster.Config
		cfg.Logger, cfg.Observe = p.logger, p.page.Registry()
		cfg.Meta.BrokerSession, cfg.ReplicaLag = 2*time.Second, time.Second
		if p.bus, err = cluster.New(cfg); err != nil {
			return err
		}
		p.brokers = p.bus.Addrs()
	}
	if err := createTopic(ctx, p.brokers, p.topic); err != nil {
		return err
	}
	for id := range p.options.nodes {
		n, err := startNode(id, "127.0.0.1:0", p.brokers, p.topic, p.page.Registry())
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, n)
		p.targets = append(p.targets, target{id, n.url()})
		p.Printf("node %d serves at %s", id, n.url())
	}
	return p.page.Start(p.Printf)
}

// close ends everything that still runs.
func (p *run) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	var closing errgroup.Group
	closing.Go(p.page.Stop)
	for _, n := range p.nodes {
		closing.Go(func() error { return n.shutdown(ctx) })
	}
	err := closing.Wait()
	if p.bus != nil {
		err = errors.Join(err, p.bus.Shutdown(ctx))
	}
	return err
}

func (p *run) scenario(ctx context.Context) error {
	polling, disconnect := context.WithCancel(ctx)
	defer disconnect()
	p.pollers = newPollers(p.targets)
	defer func() {
		for _, c := range p.pollers.clients {
			c.CloseIdleConnections()
		}
	}()
	old := min(p.polls/5, openfiles.Limit()/4)
	p.pollers.start(polling, p.polls, old, p.seed)
	defer p.pollers.running.Wait()
	defer disconnect()
	if err := p.waitUntilParked(ctx); err != nil {
		return err
	}
	p.Printf("%d polls wait, %d of them over HTTP/1.1 and the others over HTTP/2", p.polls, old)

	p.Printf("%d events a second are published for %v", p.rate, p.faultFree)
	p.pollers.faultFree.Store(true)
	if err := p.publish(ctx, p.faultFree); err != nil {
		return err
	}
	p.waitUntilSeen(ctx)
	p.pollers.faultFree.Store(false)
	p.Printf("%d events are published; now the faults, and %v of publishing after each", p.sum.Events, p.faults)

	if len(p.nodes) > 1 {
		last := len(p.nodes) - 1
		p.pollers.removeNode(p.targets[last])
		waiting := p.nodes[last].polls.Stats().Pending
		err := p.nodes[last].kill()
		p.nodes, p.targets = p.nodes[:last], p.targets[:last]
		p.Printf("node %d dies, and %d polls with it", last, waiting)
		if err = errors.Join(err, p.publish(ctx, p.faults)); err != nil {
			return err
		}
	}
	if p.bus != nil {
		victim := int32(p.rng.IntN(int(p.bus.Brokers())))
		p.Printf("broker %d dies", victim)
		if err := errors.Join(p.bus.Kill(victim), p.publish(ctx, p.faults), p.bus.Start(victim)); err != nil {
			return err
		}
		p.Printf("broker %d is back, %d events are published", victim, p.sum.Events)
	}
	if err := p.publish(ctx, p.faults); err != nil {
		return err
	}
	p.waitUntilSeen(ctx)
	if err := p.waitUntilParked(ctx); err != nil {
		return err
	}
	p.Printf("every event has been seen, and %d polls wait", p.polls)

	p.pollers.stopping.Store(true)
	if err := p.waitUntilIdle(ctx); err != nil {
		return err
	}
	answered, began := p.pollers.answered.Load(), time.Now()
	if err := p.close(); err != nil {
		return err
	}
	p.nodes, p.bus = nil, nil
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.pollers.running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(stepTimeout): // their connections are closed, and they count as not answered
		p.sum.problems.Add("polls wait on after the shutdown")
	}
	p.Printf("%d polls are answered by the shutdown, in %v", p.pollers.answered.Load()-answered, time.Since(began).Round(time.Millisecond))
	return ctx.Err()
}

// waiting returns the number of polls that wait at the nodes.
func (p *run) waiting() (n int) {
	for _, node := range p.nodes {
		n += node.held.Len()
	}
	return n
}

// waitUntilIdle returns when no poll is in transit to or from a node. No new polls begin at this
// time.
func (p *run) waitUntilIdle(ctx context.Context) error {
	for end := time.Now().Add(stepTimeout); ; {
		inFlight := p.pollers.inFlight.Load()
		if n := int64(p.waiting()); n == inFlight && n == p.pollers.inFlight.Load() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d polls are under way, and %d of them wait after %v", inFlight, p.waiting(), stepTimeout)
		}
		if err := selfcheck.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// waitUntilParked returns when every poll waits at a node.
func (p *run) waitUntilParked(ctx context.Context) error {
	for end := time.Now().Add(stepTimeout); ; {
		n := p.waiting()
		if n == p.polls {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d polls wait after %v", n, p.polls, stepTimeout)
		}
		if err := selfcheck.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// publish publishes events in one room after the other for d, at the rate of the options.
func (p *run) publish(ctx context.Context, d time.Duration) error {
	client := &http.Client{Transport: &http.Transport{}, Timeout: stepTimeout}
	defer client.CloseIdleConnections()
	began := time.Now()
	defer p.Bar(func() (float64, string) {
		past := time.Since(began)
		return past.Seconds() / d.Seconds(), fmt.Sprintf("published for %v of %v", past.Round(100*time.Millisecond), d)
	})()
	for i := 0; time.Since(began) < d; i++ {
		room := roomName(p.rng.IntN((p.polls + perRoom - 1) / perRoom))
		number := p.published[room]
		p.published[room]++
		p.sum.Events++
		resp, err := client.Post(p.targets[p.rng.IntN(len(p.targets))].url+"/rooms/"+room, "text/plain", strings.NewReader(strconv.Itoa(number)))
		if err == nil {
			err = resp.Body.Close()
			if resp.StatusCode == http.StatusAccepted {
				p.confirmed[room] = append(p.confirmed[room], number)
			} else {
				p.sum.Uncertain++
			}
		}
		if err != nil {
			return err
		}
		if err := selfcheck.Sleep(ctx, time.Until(began.Add(time.Duration(i+1)*time.Second/time.Duration(p.rate)))); err != nil {
			return err
		}
	}
	return nil
}

// waitUntilSeen returns when every poller has seen the last confirmed event of its room.
func (p *run) waitUntilSeen(ctx context.Context) {
	end := time.Now().Add(stepTimeout)
	for _, q := range p.pollers.all {
		for time.Now().Before(end) && !q.hasSeen(p.confirmed[q.room]) {
			if selfcheck.Sleep(ctx, 5*time.Millisecond) != nil {
				return
			}
		}
	}
}
