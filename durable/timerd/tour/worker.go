package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/daemon"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

const (
	lease       = time.Second
	callTimeout = time.Second
	maxAttempts = 12
)

// workerConfig is the configuration of a timerd process of the tour.
type workerConfig struct {
	Listen  string
	Store   string
	Workers int
	Ledger  string
}

// runWorker runs timerd unchanged, except that it records when handlers begin and which changes the
// store accepts.
func runWorker(ctx context.Context, c workerConfig) error {
	l, err := openLedger(c.Ledger)
	if err != nil {
		return err
	}
	return daemon.Run(ctx, daemon.Config{
		Listen: c.Listen, Store: c.Store, Namespace: "tour", Shards: 16,
		Workers: c.Workers, Lease: lease, MaxAttempts: maxAttempts,
		Backoff: 100 * time.Millisecond, MaxBackoff: 500 * time.Millisecond, Grace: 2 * time.Second,
		Allow:       []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		CallTimeout: callTimeout, PerHost: 64, MaxSnooze: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
		WrapStore: func(s store.Store) store.Store {
			return &recordingStore{Store: s, ledger: l, ids: make(map[leaseKey]store.ID)}
		},
		WrapHandler: func(h durable.Handler) durable.Handler { return recordBegins(h, l) },
	})
}

// recordBegins records when a handler begins, and takes the time first: the rest may take long,
// because the garbage collector can delay an allocation for its whole cycle.
func recordBegins(h durable.Handler, l *ledger) durable.Handler {
	return func(ctx context.Context, f durable.Fired) error {
		begun := micros()
		if call, err := webhook.Decode(f.Body); err == nil {
			if e, _, ok := parseBody(call.Body); ok {
				e.Kind, e.At, e.ID, e.Attempt = eventBegins, begun, f.ID.String(), f.Attempt
				if f.Schedule != "" {
					e.Planned = f.Planned.UnixMilli()
				}
				l.write(e)
			}
		}
		return h(ctx, f)
	}
}

// recordingStore records the acknowledgements that the store accepts, by timer ID, which it learns
// from the claims, and the occurrences that the store creates.
type recordingStore struct {
	store.Store
	ledger *ledger

	mu  sync.Mutex
	ids map[leaseKey]store.ID
}

type leaseKey struct {
	token store.Token
	key   string
}

func (a *recordingStore) Claim(ctx context.Context, shard int, c store.Claim) (store.Claimed, store.Horizon, error) {
	claimed, horizon, err := a.Store.Claim(ctx, shard, c)
	a.learn(claimed.Leases)
	return claimed, horizon, err
}

func (a *recordingStore) learn(leases []store.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range leases {
		a.ids[leaseKey{l.Token, l.Key}] = l.ID
	}
}

func (a *recordingStore) End(ctx context.Context, shard int, ends []store.Outcome) ([]store.EndResult, store.Horizon, error) {
	results, horizon, err := a.Store.End(ctx, shard, ends)
	for i, r := range results {
		e := ends[i]
		id, known := a.id(e.Holder)
		if known && err == nil && r != store.EndLost && e.Kind == store.Done {
			a.ledger.write(event{Kind: eventAcknowledged, At: micros(), ID: id.String()})
		}
	}
	return results, horizon, err
}

func (a *recordingStore) SwapPlans(ctx context.Context, shard int, swaps []store.PlanSwap, take store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
	sent := micros()
	results, leases, horizon, err := a.Store.SwapPlans(ctx, shard, swaps, take)
	a.learn(leases)
	for i, r := range results {
		if err != nil || r != store.Swapped {
			continue
		}
		for _, entry := range swaps[i].Entries {
			call, err := webhook.Decode(entry.Body)
			if err != nil {
				continue
			}
			if e, _, ok := parseBody(call.Body); ok {
				e.Kind, e.At, e.ID = eventCreated, sent, entry.ID.String()
				e.Planned = durable.PlannedTime(entry.Key).UnixMilli()
				a.ledger.write(e)
			}
		}
	}
	return results, leases, horizon, err
}

// id returns the ID of a lease. IDs are never forgotten, so that a lease whose end is accepted
// twice is detected; a tour is short.
func (a *recordingStore) id(h store.Holder) (store.ID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok := a.ids[leaseKey{h.Token, h.Key}]
	return id, ok
}
