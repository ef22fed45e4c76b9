package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// load is what the drive does to the cluster.
type load struct {
	duration time.Duration // of producing, at least: the tour of faults is seen to its end
	rate     int           // records per second, steadily; a burst of as many comes once in two seconds
	polls    int           // long polls kept parked
	waits    time.Duration // a poll waits at least a quarter of this, at most all of it
	trickle  time.Duration // between two records to quiet partitions
	hangUps  time.Duration // between two clients that hang up
	members  int           // of the consumer group
	faults   bool
	seed     uint64 // of the tour: see tour.go
}

func defaultLoad() load {
	return load{
		duration: 10 * time.Second,
		rate:     10_000,
		polls:    2_000,
		waits:    6 * time.Second,
		trickle:  20 * time.Millisecond,
		hangUps:  250 * time.Millisecond,
		members:  3,
		faults:   true,
	}
}

const (
	steadyTopic = "steady"
	burstTopic  = "bursts"
	quietTopic  = "quiet"

	busyPartitions = 4 // of the first two
	quietest       = 64
)

// grace is how long what was sent may still take to arrive.
const grace = 20 * time.Second

// drive is one run: the cluster, its load, and what was found out.
type drive struct {
	cluster *cluster
	load    load
	ledger  *ledger
	polls   *pollers
	readers *readers
	tour    *tour
	stalls  *stalls
	ids     map[string]topicID
	start   time.Time
	busy    time.Duration // what the producers took
	slept   atomic.Uint64 // fetches that expired with data there long before

	// grace ends some time after the producers stop: what they count as sent is
	// to arrive, but a broken broker must not hold up the verdict for ever.
	grace context.Context

	mu       sync.Mutex
	problems []string // guarded by mu
}

// problem notes something that makes the run fail.
func (d *drive) problem(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.problems) < 20 { // a broken broker has thousands
		d.problems = append(d.problems, fmt.Sprintf(format, args...))
	}
}

func runTour(cfg config, l load, asJSON bool, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	live := stdout
	if asJSON {
		live = stderr
	}
	sum, err := runLoad(ctx, cfg, l, live)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "broker: tour: %v\n", err)
		return 1
	}
	sum.print(live)
	if asJSON {
		sum.printJSON(stdout)
	}
	if !sum.ok() {
		return 1
	}
	return 0
}

// runLoad starts a cluster, drives it for as long as l and the tour say or until
// ctx ends, shuts it down while polls are parked, and counts.
func runLoad(ctx context.Context, cfg config, l load, live io.Writer) (*summary, error) {
	before := runtime.NumGoroutine()

	polls, perConn := pollShape(l.polls, cfg.maxInFlight)
	quiet := min(polls, quietest, cfg.maxPartitions-2*busyPartitions)
	// Room for the polls and the clients of kgo, and for hung-up connections that
	// a broker has not noticed yet.
	cfg.maxConnections = max(cfg.maxConnections, 2*polls+64)
	// Hang-ups in the middle of a frame are part of the load; each is a line.
	cfg.logger = slog.New(slog.NewTextHandler(live, &slog.HandlerOptions{Level: slog.LevelError}))
	d := &drive{
		load:   l,
		ledger: newLedger(map[string]int{steadyTopic: busyPartitions, burstTopic: busyPartitions, quietTopic: quiet}),
		start:  time.Now(),
	}
	d.stalls = &stalls{start: d.start}
	cfg.expired = d.expired
	c, err := newCluster(cfg)
	if err != nil {
		return nil, err
	}
	d.cluster = c
	defer func() {
		if err != nil {
			c.Shutdown(context.Background()) //nolint:errcheck // on the way out with another error
		}
	}()
	if err = d.createTopics(ctx); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(live, "brokers on %s: %d records/s and bursts; %d long polls on %d quiet partitions over %d connections; a group of %d\n",
		strings.Join(c.addrs(), ", "), l.rate, polls*perConn, quiet, polls, l.members)

	// The observers outlive the producers, and those what they have sent.
	var endGrace context.CancelFunc
	d.grace, endGrace = context.WithCancel(context.Background())
	defer endGrace()
	observed, stopObserving := context.WithCancel(context.Background())
	var observers, producers, touring sync.WaitGroup
	table := newTable(live, d)
	d.tour = newTour(d, table.say)
	d.polls = startPolls(d, polls, perConn, quiet)
	d.readers = startReaders(d, l.members)
	measured, stopMeasuring := context.WithCancel(context.Background())
	var measuring sync.WaitGroup
	measuring.Go(func() { d.stalls.measure(measured) })
	observers.Go(func() { d.consume(observed, steadyTopic, burstTopic) })
	observers.Go(func() { d.consume(observed, quietTopic) })
	observers.Go(func() { table.run(observed) })

	produced, stopProducing := context.WithCancel(ctx)
	touring.Go(func() {
		defer stopProducing()
		atLeast, enough := context.WithTimeout(ctx, l.duration)
		defer enough()
		if l.faults {
			d.tour.run(ctx)
		}
		<-atLeast.Done()
	})
	producers.Go(func() { d.produceSteady(produced) })
	producers.Go(func() { d.produceBursts(produced) })
	producers.Go(func() { d.produceQuiet(produced) })
	producers.Go(func() { d.polls.hangUpNowAndThen(produced) })
	touring.Wait()
	time.AfterFunc(grace, endGrace)
	producers.Wait()
	d.busy = time.Since(d.start)

	d.ledger.waitComplete(10 * time.Second)
	d.readers.end(10 * time.Second)
	stopObserving()
	observers.Wait()

	// Shut down with polls parked: each of them must be answered all the same.
	d.polls.settle(5 * time.Second)
	d.polls.shuttingDown.Store(true)
	stopping := time.Now()
	shutdown, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := c.Shutdown(shutdown); err != nil {
		d.problem("shutdown: %v", err)
	}
	took := time.Since(stopping)
	d.polls.wait()
	stopMeasuring()
	measuring.Wait()

	return d.summarize(before, took), nil
}

// client makes a kgo client; its own metadata and retries are its business.
func (d *drive) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(d.cluster.addrs()...)}, opts...)...)
}

func (d *drive) createTopics(ctx context.Context) error {
	cl, err := d.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	for topic, partitions := range d.ledger.topics {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, int32(len(partitions)), -1
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	d.ids = map[string]topicID{}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("create topic %s: %w", t.Topic, err)
		}
		d.ids[t.Topic] = t.TopicID
	}
	// A broker answers that there is no such topic until it has heard of it; Kafka's
	// clients ask again then, and the polls do not.
	for _, s := range d.cluster.running() {
		s.catchUp(ctx)
	}
	return ctx.Err()
}
