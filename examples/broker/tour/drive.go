package tour

import (
	"context"
	"fmt"
	"io"
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

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/internal/livepage"
	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

// Load is the load that the drive puts on the cluster.
type Load struct {
	Duration time.Duration // of producing, at least: the scenarios always complete
	Rate     int           // records per second, steadily; every other second, a burst of as many
	Polls    int           // long polls kept parked
	Waits    time.Duration // a poll's max wait is between a quarter of this and all of it
	Trickle  time.Duration // between two records to quiet partitions
	HangUps  time.Duration // between two disconnects of clients
	Members  int           // of the consumer group
	Faults   bool
	Seed     uint64        // of the order of the scenarios: see scenarios.go
	Calm     time.Duration // before each fault

	scenarios []scenario // nil: all
}

// DefaultLoad returns the load of the README's tour.
func DefaultLoad() Load {
	return Load{
		Duration: 10 * time.Second,
		Rate:     10_000,
		Polls:    2_000,
		Waits:    6 * time.Second,
		Trickle:  20 * time.Millisecond,
		HangUps:  250 * time.Millisecond,
		Members:  3,
		Faults:   true,
		Calm:     500 * time.Millisecond,
	}
}

const (
	steadyTopic = "steady"
	burstTopic  = "bursts"
	quietTopic  = "quiet"

	busyPartitions     = 4 // of the first two
	maxQuietPartitions = 64
)

// shutdownTimeout limits how long parked requests and slow clients may delay a broker's end.
const shutdownTimeout = 10 * time.Second

// grace is how long sent records may still take to arrive.
const grace = 20 * time.Second

// drive is one run: the cluster, its load, and the results.
type drive struct {
	network       network.Network
	cluster       *cluster.Cluster
	load          Load
	ledger        *ledger
	polls         *pollers
	readers       *readers
	tour          *tour
	stalls        *stalls
	ids           map[string][16]byte
	start         time.Time
	producedFor   time.Duration // time that the producers took
	missedWakeUps atomic.Uint64 // fetches that expired long after their data was available

	// grace ends some time after the producers stop: the records that they count as sent should
	// arrive, but a broken broker must not delay the verdict forever.
	grace context.Context

	mu       sync.Mutex
	problems selfcheck.Problems // guarded by mu
}

// problem records a problem, which makes the run fail.
func (d *drive) problem(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems.Add(format, args...)
}

// QuickFaultDetection makes brokers notice each other's faults within one or two seconds; the
// defaults are as long as Kafka's.
func QuickFaultDetection(cfg *cluster.Config) {
	cfg.ReplicaLag, cfg.Meta.BrokerSession = time.Second, 2*time.Second
}

// Run takes a cluster on the tour and prints the results. It returns the exit status.
func Run(cfg cluster.Config, l Load, page *livepage.Page, asJSON bool, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return selfcheck.Run("broker: tour", asJSON, stdout, stderr, func(live io.Writer) (selfcheck.Summary, error) {
		sum, err := runLoad(ctx, cfg, l, page, live)
		if err != nil {
			return nil, err
		}
		sum.printOperations(live)
		return sum, nil
	})
}

// runLoad starts a cluster, drives it for as long as l and the scenarios say or until ctx ends,
// shuts it down while polls are parked, and summarizes the run.
func runLoad(ctx context.Context, cfg cluster.Config, l Load, page *livepage.Page, live io.Writer) (*summary, error) {
	before := runtime.NumGoroutine()

	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	polls, perConn := pollShape(l.Polls, cfg.Wire.MaxInFlight)
	quiet := min(polls, maxQuietPartitions, cfg.Meta.MaxPartitions-2*busyPartitions)
	// Enough for the polls and the kgo clients, and for closed connections that a broker has not
	// noticed yet.
	cfg.Wire.MaxConnections = max(cfg.Wire.MaxConnections, 2*polls+64)
	d := &drive{
		network: cfg.Network,
		load:    l,
		ledger:  newLedger(map[string]int{steadyTopic: busyPartitions, burstTopic: busyPartitions, quietTopic: quiet}),
		start:   time.Now(),
	}
	d.stalls = &stalls{start: d.start}
	cfg.OnExpire, cfg.Observe = d.checkExpired, page.Registry()
	c, err := cluster.New(cfg)
	if err != nil {
		return nil, err
	}
	d.cluster = c
	defer func() {
		if err != nil {
			c.Shutdown(context.Background()) //nolint:errcheck // on the way out with another error
		}
	}()
	if err = page.Start(func(format string, args ...any) { _, _ = fmt.Fprintf(live, format+"\n", args...) }); err != nil {
		return nil, err
	}
	defer func() { _ = page.Stop() }() // if it is not stopped yet
	if err = d.createTopics(ctx); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(live, "brokers on %s: %d records/s and bursts; %d long polls on %d quiet partitions over %d connections; a group of %d\n",
		strings.Join(c.Addrs(), ", "), l.Rate, polls*perConn, quiet, polls, l.Members)

	// The observers outlive the producers, and the producers' records that are still on their way.
	var endGrace context.CancelFunc
	d.grace, endGrace = context.WithCancel(context.Background())
	defer endGrace()
	observed, stopObserving := context.WithCancel(context.Background())
	var observers, producers, faults sync.WaitGroup
	table := newTable(live, d)
	d.tour = newTour(d, table.printf)
	d.polls = startPolls(d, polls, perConn, quiet)
	d.readers = startReaders(d, l.Members)
	measured, stopMeasuring := context.WithCancel(context.Background())
	var measuring sync.WaitGroup
	measuring.Go(func() { d.stalls.measure(measured) })
	observers.Go(func() { d.consume(observed, steadyTopic, burstTopic) })
	observers.Go(func() { d.consume(observed, quietTopic) })
	observers.Go(func() { table.run(observed) })

	produced, stopProducing := context.WithCancel(ctx)
	faults.Go(func() {
		defer stopProducing()
		atLeast, enough := context.WithTimeout(ctx, l.Duration)
		defer enough()
		if l.Faults {
			d.tour.run(ctx)
		}
		<-atLeast.Done()
		d.ledger.waitFor(ctx, scenarioTimeout, func(s sums) bool { return s.acked > 0 }) // a busy machine may need longer
	})
	producers.Go(func() { d.produceSteady(produced) })
	producers.Go(func() { d.produceBursts(produced) })
	producers.Go(func() { d.produceQuiet(produced) })
	producers.Go(func() { d.polls.disconnectSome(produced) })
	faults.Wait()
	time.AfterFunc(grace, endGrace)
	producers.Wait()
	d.producedFor = time.Since(d.start)

	d.ledger.waitFor(context.Background(), time.Minute, func(s sums) bool {
		return s.lost == 0 && s.acked+s.failed == s.sent // every record that arrived was seen
	})
	d.readers.end(time.Minute)
	stopObserving()
	observers.Wait()

	// Shut down with polls parked: each of them must still be answered.
	d.polls.drain(time.Minute)
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

	if err = page.Stop(); err != nil {
		return nil, err
	}
	return d.summarize(before, took), nil
}

// client returns a kgo client, which maintains its own metadata and retries.
func (d *drive) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(d.cluster.Addrs()...), kgo.Dialer(d.network.DialContext),
		kgo.MetadataMinAge(100 * time.Millisecond), // to find a new leader soon
	}, opts...)...)
}

func (d *drive) createTopics(ctx context.Context) error {
	cl, err := d.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	for topic, partitions := range d.ledger.topics {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, int32(len(partitions)), -1
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	d.ids = map[string][16]byte{}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("create topic %s: %w", t.Topic, err)
		}
		d.ids[t.Topic] = t.TopicID
	}
	// A broker answers UNKNOWN_TOPIC until it learns of a new topic. Kafka clients retry; these
	// polls do not.
	return d.cluster.WaitHealthy(ctx)
}
