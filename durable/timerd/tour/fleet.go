package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/pebblestore"
	"github.com/seed-782fa212/limbo/internal/programs"
)

const (
	receivers    = 3
	masters      = 3   // of the Redis Cluster
	workers      = 3   // with Redis
	concurrent   = 256 // callbacks of a worker
	startTimeout = time.Minute
)

// fleet has the tour's processes.
//
// With the embedded store these are one timerd, which is both engine and worker, and receivers; the
// tour kills and pauses all of them. With Redis these are the redis-servers, which are the engine,
// each behind a proxy; a timerd that serves the API without a worker; timerds with workers, which
// the tour kills and pauses; and receivers.
type fleet struct {
	engines     []*process
	join        func(context.Context) error // joins the engines, once they answer; may be nil
	proxies     []*proxy
	counts      proxyCounts
	api         *process
	apiAddr     string
	workers     []*process // killed and paused as workers; with the embedded store the receivers
	receivers   []*process
	schedulers  []*process
	all         []*process          // in order of their start
	countLeft   func() (int, error) // counts the entries of the store after the workers have ended
	listenAddrs []string            // host:ports that must accept connections before the load
}

// setUp chooses ports and files and creates the processes, without starting them.
func (t *tour) setUp() error {
	f := &t.fleet
	var err error
	newAddr := func() string {
		addr, e := programs.Addr()
		err = errors.Join(err, e)
		return addr
	}
	var ledgers, urls []string
	add := func(name, listen string, config func(ledger string) childConfig) *process {
		ledger := t.path(name + ".ledger")
		p, e := child(name, t.path(name+".log"), config(ledger))
		err = errors.Join(err, e)
		ledgers = append(ledgers, ledger)
		f.listenAddrs = append(f.listenAddrs, listen)
		f.all = append(f.all, p)
		return p
	}
	f.apiAddr = newAddr()
	worker := func(name, store, listen string, n int) *process {
		p := add(name, listen, func(ledger string) childConfig {
			return childConfig{Worker: &workerConfig{Listen: listen, Store: store, Workers: n, Ledger: ledger}}
		})
		if p != nil { // otherwise add has recorded an error
			p.restarts = t.Store != onPebble
		}
		return p
	}
	if t.Store != onPebble {
		n := 1
		if t.Store == onCluster {
			n = masters
		}
		var servers, proxyAddrs []string
		for i := range n {
			server, proxyAddr := newAddr(), newAddr()
			var p *process
			var e error
			if t.Store == onCluster {
				p, e = clusterNode(t.dir, fmt.Sprintf("redis-%d", i+1), server, proxyAddr)
			} else {
				p, e = redisServer(t.dir, "redis", server)
			}
			if e != nil {
				return e
			}
			f.engines, f.all = append(f.engines, p), append(f.all, p)
			f.listenAddrs = append(f.listenAddrs, server)
			f.proxies = append(f.proxies, newProxy(proxyAddr, server, t.Seed+uint64(i), t.Span/2, &f.counts))
			servers, proxyAddrs = append(servers, server), append(proxyAddrs, proxyAddr)
		}
		url := "redis://" + proxyAddrs[0]
		if t.Store == onCluster {
			url = "redis+cluster://" + proxyAddrs[0] + "?addr=" + strings.Join(proxyAddrs[1:], "&addr=")
			f.join = func(ctx context.Context) error { return joinCluster(ctx, servers) }
		}
		f.api = worker("timerd", url, f.apiAddr, 0)
		for i := range workers {
			f.workers = append(f.workers, worker(fmt.Sprintf("worker-%d", i+1), url, newAddr(), concurrent))
		}
		f.countLeft = func() (left int, err error) {
			for _, server := range servers {
				n, e := redisLeft(server)
				left, err = left+n, errors.Join(err, e)
			}
			return left, err
		}
	} else {
		dir := t.path("store")
		f.api = worker("timerd", "pebble:"+dir, f.apiAddr, concurrent)
		f.engines = []*process{f.api}
		f.countLeft = func() (int, error) { return pebbleLeft(dir) }
	}
	for i := range receivers {
		listen := newAddr()
		urls = append(urls, "http://"+listen+"/done")
		f.receivers = append(f.receivers, add(fmt.Sprintf("receiver-%d", i+1), listen, func(ledger string) childConfig {
			return childConfig{Receiver: &receiverConfig{Listen: listen, Ledger: ledger}}
		}))
	}
	if t.Store == onPebble {
		f.workers = f.receivers
	}
	for i := range schedulers {
		ledgers = append(ledgers, t.schedulerLedger(i))
	}
	base := "http://" + f.apiAddr
	api, apiErr := newClient(base)
	t.api = apiClient{Client: api, base: base, receivers: urls}
	t.history = newHistory(ledgers...)
	return errors.Join(err, apiErr)
}

func (t *tour) schedulerLedger(i int) string { return t.path(fmt.Sprintf("scheduler-%d.ledger", i+1)) }

// start starts all processes except the schedulers, and waits until they answer.
func (f *fleet) start(ctx context.Context) error {
	for _, proxy := range f.proxies {
		if err := proxy.start(); err != nil {
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
		if err := programs.Await(ctx.Done(), programs.Accepts(f.listenAddrs[i])); err != nil {
			return fmt.Errorf("timerd: %s does not answer: %w; see %s", p.name, err, p.log)
		}
	}
	return awaitHealth(ctx, f.apiAddr)
}

func (f *fleet) startSchedulers(t *tour, start time.Time) error {
	for i := range schedulers {
		name := fmt.Sprintf("scheduler-%d", i+1)
		p, err := child(name, t.path(name+".log"), childConfig{Scheduler: &schedulerConfig{
			Load:  load{Timers: t.Timers, Schedules: t.Schedules, Span: t.Span, Schedulers: schedulers, Seed: t.Seed},
			Index: i, Start: start, API: t.api.base, Receivers: t.api.receivers, Ledger: t.schedulerLedger(i),
		}})
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
	for _, p := range append([]*process{f.api}, f.workers...) {
		p.stop(10 * time.Second)
	}
	for _, proxy := range f.proxies {
		proxy.flush()
	}
}

// stopAll ends all running processes, in reverse order of their start.
func (f *fleet) stopAll() {
	for _, p := range f.schedulers {
		p.kill()
	}
	for i := len(f.all) - 1; i >= 0; i-- {
		f.all[i].stop(5 * time.Second)
	}
	for _, proxy := range f.proxies {
		proxy.cutAll()
	}
}

// kills returns how often workers and engines were killed.
func (f *fleet) kills() (workers, engines int) {
	for _, p := range f.workers {
		workers += p.kills()
	}
	for _, p := range f.engines {
		engines += p.kills()
	}
	return workers, engines
}

// pebbleLeft counts the entries of an embedded store that no process has open.
func pebbleLeft(dir string) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
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

func awaitHealth(ctx context.Context, address string) error {
	return programs.Await(ctx.Done(), func() error {
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
