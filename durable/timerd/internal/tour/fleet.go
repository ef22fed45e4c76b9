package tour

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/loopback"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
)

const (
	receivers  = 3
	masters    = 3   // of the Redis Cluster
	workers    = 3   // with Redis
	concurrent = 256 // callbacks of a worker
	startUp    = time.Minute
)

// fleet has the tour's processes.
//
// With the embedded store these are one timerd, which is both engine and worker, and receivers; the
// tour kills and pauses all of them. With Redis these are the redis-servers, which are the engine,
// each behind a network; a timerd that serves the API without a worker; timerds with workers, which
// the tour kills and pauses; and receivers.
type fleet struct {
	engines    []*process
	join       func(context.Context) error // joins the engines, once they answer; may be nil
	networks   []*network
	counts     networkCounts
	front      *process
	frontAt    string
	runners    []*process // the processes that count as workers
	receivers  []*process
	schedulers []*process
	all        []*process          // in order of their start
	left       func() (int, error) // counts the entries of the store after the workers have ended
	healthy    []string            // host:ports that must accept connections before the load
}

// assemble chooses ports and files and creates the processes, without starting them.
func (t *tour) assemble() error {
	f := &t.fleet
	var err error
	take := func() string {
		addr, e := loopback.Addr()
		err = errors.Join(err, e)
		return addr
	}
	var ledgers, urls []string
	add := func(name, role, listen string, config func(ledger string) any) *process {
		ledger := t.path(name + ".ledger")
		p, e := child(name, role, t.path(name+".log"), config(ledger))
		err = errors.Join(err, e)
		ledgers = append(ledgers, ledger)
		if listen != "" {
			f.healthy = append(f.healthy, listen)
		}
		f.all = append(f.all, p)
		return p
	}
	f.frontAt = take()
	worker := func(name, store, listen string, n int) *process {
		p := add(name, roleWorker, listen, func(ledger string) any {
			return workerConfig{Listen: listen, Store: store, Workers: n, Ledger: ledger}
		})
		if p != nil { // otherwise add has recorded an error
			p.revives = t.Store != Pebble
		}
		return p
	}
	if t.Store != Pebble {
		n := 1
		if t.Store == Cluster {
			n = masters
		}
		var servers, ways []string
		for i := range n {
			server, way := take(), take()
			var p *process
			var e error
			if t.Store == Cluster {
				p, e = clusterNode(t.dir, fmt.Sprintf("redis-%d", i+1), server, way)
			} else {
				p, e = redisServer(t.dir, "redis", server)
			}
			if e != nil {
				return e
			}
			f.engines, f.all = append(f.engines, p), append(f.all, p)
			f.healthy = append(f.healthy, server)
			f.networks = append(f.networks, newNetwork(way, server, t.Seed+uint64(i), t.Span/2, &f.counts))
			servers, ways = append(servers, server), append(ways, way)
		}
		url := "redis://" + ways[0]
		if t.Store == Cluster {
			url = "redis+cluster://" + ways[0] + "?addr=" + strings.Join(ways[1:], "&addr=")
			f.join = func(ctx context.Context) error { return joinCluster(ctx, servers) }
		}
		f.front = worker("timerd", url, f.frontAt, 0)
		for i := range workers {
			f.runners = append(f.runners, worker(fmt.Sprintf("worker-%d", i+1), url, take(), concurrent))
		}
		f.left = func() (left int, err error) {
			for _, server := range servers {
				n, e := redisLeft(server)
				left, err = left+n, errors.Join(err, e)
			}
			return left, err
		}
	} else {
		dir := t.path("store")
		f.front = worker("timerd", "pebble:"+dir, f.frontAt, concurrent)
		f.engines = []*process{f.front}
		f.left = func() (int, error) { return pebbleLeft(dir) }
	}
	for i := range receivers {
		listen := take()
		urls = append(urls, "http://"+listen+"/done")
		f.receivers = append(f.receivers, add(fmt.Sprintf("receiver-%d", i+1), roleReceiver, listen, func(ledger string) any {
			return receiverConfig{Listen: listen, Ledger: ledger}
		}))
	}
	if t.Store == Pebble {
		f.runners = f.receivers
	}
	for i := range schedulers {
		ledgers = append(ledgers, t.schedulerLedger(i))
	}
	base := "http://" + f.frontAt
	api, apiErr := newClient(base)
	t.api = apiClient{Client: api, base: base, receivers: urls}
	t.history = newBook(ledgers...)
	return errors.Join(err, apiErr)
}

func (t *tour) schedulerLedger(i int) string { return t.path(fmt.Sprintf("scheduler-%d.ledger", i+1)) }

// start starts all processes except the schedulers, and waits until they answer.
func (f *fleet) start(ctx context.Context) error {
	for _, n := range f.networks {
		if err := n.start(); err != nil {
			return err
		}
	}
	for i, p := range f.all {
		if i == len(f.engines) && f.join != nil {
			if err := f.join(ctx); err != nil {
				return err
			}
		}
		if err := p.start(); err != nil {
			return err
		}
		if err := awaitPort(ctx, f.healthy[i]); err != nil {
			return fmt.Errorf("timerd: %s does not answer: %w; see %s", p.name, err, p.log)
		}
	}
	return awaitHealth(ctx, f.frontAt)
}

func (f *fleet) startSchedulers(t *tour, start time.Time) error {
	for i := range schedulers {
		name := fmt.Sprintf("scheduler-%d", i+1)
		p, err := child(name, roleScheduler, t.path(name+".log"), schedulerConfig{
			Load:  load{Timers: t.Timers, Schedules: t.Schedules, Span: t.Span, Schedulers: schedulers, Seed: t.Seed},
			Index: i, Start: start, API: t.api.base, Receivers: t.api.receivers, Ledger: t.schedulerLedger(i),
		})
		if err == nil {
			err = p.start()
		}
		if err != nil {
			return err
		}
		f.schedulers = append(f.schedulers, p)
	}
	return nil
}

func (f *fleet) waitSchedulers() error {
	var errs []error
	for _, p := range f.schedulers {
		errs = append(errs, p.wait())
	}
	return errors.Join(errs...)
}

// stopWorkers shuts the timerds down and delivers the late requests. The redis-servers keep
// running.
func (f *fleet) stopWorkers() {
	for _, p := range append([]*process{f.front}, f.runners...) {
		_ = p.stop(10 * time.Second)
	}
	for _, n := range f.networks {
		n.settle()
	}
}

// stopAll ends all running processes, in reverse order of their start.
func (f *fleet) stopAll() {
	for _, p := range f.schedulers {
		_ = p.kill()
	}
	for i := len(f.all) - 1; i >= 0; i-- {
		_ = f.all[i].stop(5 * time.Second)
	}
	for _, n := range f.networks {
		n.cutAll()
	}
}

// kills returns how often workers and engines were killed.
func (f *fleet) kills() (workers, engines int) {
	for _, p := range f.runners {
		workers += p.kills()
	}
	for _, p := range f.engines {
		engines += p.kills()
	}
	return workers, engines
}

// pebbleLeft counts the entries of an embedded store that no process has open.
func pebbleLeft(dir string) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startUp)
	defer cancel()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return 1, err
	}
	defer s.Close()
	for shard := range s.Shards() {
		st, err := s.Stats(ctx, shard)
		if err != nil {
			return 1, err
		}
		n += st.Waiting + st.Leased + st.Dead + st.Plans
	}
	return n, nil
}

func awaitPort(ctx context.Context, address string) error {
	return await(ctx, func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

func awaitHealth(ctx context.Context, address string) error {
	return await(ctx, func() error {
		res, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	})
}

// await repeats f until it succeeds, for at most startUp.
func await(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(startUp)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
