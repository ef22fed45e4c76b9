package storetest

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

// asIf changes due waiting timers during claims.
func asIf(set func(*oracle.Timer)) func(*rigged) {
	return func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			was := map[string]store.Record{}
			now := r.ms()
			r.during(n, store.Waiting, func(t *oracle.Timer) func() {
				if t.Due > now {
					return nil
				}
				old := t.Record
				was[t.Key] = old
				set(t)
				return func() { t.Due, t.Topic = old.Due, old.Topic }
			}, func() { got = do(c) })
			for i, l := range got.Leases {
				if old, ok := was[l.Key]; ok {
					got.Leases[i].Due, got.Leases[i].Topic = old.Due, old.Topic
				}
			}
			return got
		})
	}
}

// ofClaim changes the parameters of claims.
func ofClaim(set func(*store.Claim)) func(*rigged) {
	return func(r *rigged) {
		r.claims(func(_ int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			set(&c)
			return do(c)
		})
	}
}

// events changes the events of subscriptions.
func events(f func(e store.Event, do func(store.Event))) func(*rigged) {
	return func(r *rigged) {
		r.subscribe = func(ctx context.Context, do func(store.Event)) error {
			return r.Store.Subscribe(ctx, func(e store.Event) { f(e, do) })
		}
	}
}

var readFaults = []fault{
	// Claims.
	{name: "a lane is in order of keys", found: []string{"D11 in a lane"}, rig: asIf(func(t *oracle.Timer) { t.Due = 1 })},
	{name: "there is one lane", found: []string{"D11 lanes take", "D11 a full"}, rig: asIf(func(t *oracle.Timer) { t.Topic = "" })},
	{name: "claims begin with the same lane", found: []string{"D11 lanes take"}, rig: ofClaim(func(c *store.Claim) { c.FirstLane = 0 })},
	{name: "expired leases wait for the lanes", found: []string{"D11 expired leases take"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			if h := r.horizonOf(n); h.NextDue == 0 || h.NextDue > h.Now {
				return do(c)
			}
			r.during(n, store.Leased, func(t *oracle.Timer) func() {
				if t.LeaseEnd > r.ms() || t.Cancelled || t.Successor != nil || t.Attempts >= c.MaxAttempts {
					return nil
				}
				return hide(t)
			}, func() { got = do(c) })
			return got
		})
	}},
	{name: "expired leases are in order of keys", found: []string{"D11 expired leases are"}, rig: forExpired(func(t *oracle.Timer) func() {
		undo := hide(t)
		t.LeaseEnd = 1
		return undo
	})},
	{name: "a claim has one too many", found: []string{"D12 a claim is bounded by its count"}, rig: ofClaim(func(c *store.Claim) { c.Max = min(c.Max+1, store.MaxItems) })},
	{name: "a claim's bytes are not counted", found: []string{"D12 a claim is bounded by the size"}, rig: ofClaim(func(c *store.Claim) { c.MaxBytes = store.MaxClaim })},
	{name: "a claim without capacity skips expired leases", found: []string{"D6 a claim processes"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			due := 0
			r.timersOf(n, store.Waiting, func(t *oracle.Timer) {
				if t.Due <= r.ms() {
					due++
				}
			})
			r.during(n, store.Leased, func(t *oracle.Timer) func() {
				if t.LeaseEnd > r.ms() || due < c.Max {
					return nil
				}
				return hide(t)
			}, func() { got = do(c) })
			return got
		})
	}},

	// Dead letters.
	{name: "a requeued timer keeps its attempts", found: []string{"D9 dead letters"}, rig: func(r *rigged) {
		r.requeues(func(key string, do func(string) store.RequeueResult) store.RequeueResult {
			old := r.record(key)
			result := do(key)
			r.timer(key, func(_ *oracle.Shard, t *oracle.Timer) { t.Attempts = old.Attempts })
			return result
		})
	}},
	{name: "requeue accepts waiting and leased timers", found: []string{"D9 requeue is"}, rig: func(r *rigged) {
		r.requeues(func(key string, do func(string) store.RequeueResult) store.RequeueResult {
			if result := do(key); result != store.RequeueExists {
				return result
			}
			r.timer(key, func(_ *oracle.Shard, t *oracle.Timer) { t.Due = 1 })
			return store.Requeued
		})
	}},
	{name: "purge removes waiting timers", found: []string{"D9 purge"}, rig: func(r *rigged) {
		r.purge = func(ctx context.Context, n int, keys []string) (int, error) {
			purged, err := r.Store.Purge(ctx, n, keys)
			for _, key := range keys {
				r.timer(key, func(s *oracle.Shard, t *oracle.Timer) {
					if t.State == store.Waiting {
						delete(s.Timers, key)
					}
				})
			}
			return purged, err
		}
	}},
	{name: "MaxDead is not applied", found: []string{"D9 MaxDead:"}, rig: func(r *rigged) { r.Limits.MaxDead = math.MaxInt }},
	{name: "MaxDeadAge alone is applied", found: []string{"D9 MaxDead and MaxDeadAge"}, rig: func(r *rigged) {
		if r.Limits.MaxDeadAge > 0 {
			r.Limits.MaxDead = 0
		}
	}},
	{name: "MaxDeadAge is not applied", found: []string{"D9 MaxDeadAge"}, rig: func(r *rigged) { r.Limits.MaxDeadAge = 0 }},
	{name: "MaxDeadAge is a millisecond less", found: []string{"D9 MaxDeadAge"}, noModel: true, rig: func(r *rigged) {
		if r.Limits.MaxDeadAge > 0 {
			r.Limits.MaxDeadAge -= time.Millisecond
		}
	}},
	{name: "MaxDeadAge is a millisecond more", found: []string{"D9 MaxDeadAge"}, noModel: true, rig: func(r *rigged) {
		if r.Limits.MaxDeadAge > 0 {
			r.Limits.MaxDeadAge += time.Millisecond
		}
	}},
	{name: "a dead letter waits, too", found: []string{"D9 DeadLetter"}, rig: func(r *rigged) {
		r.list = func(ctx context.Context, n int, q store.Query) (store.Page, error) {
			page, err := r.Store.List(ctx, n, q)
			if err != nil || len(page.Records) > 0 || q.After.At > 0 || q.State != store.Waiting {
				return page, err
			}
			q.State = store.Dead
			return r.Store.List(ctx, n, q)
		}
	}},

	// Reads.
	{name: "List passes over ties of waiting timers", found: []string{"pages of waiting timers, by", "case 12"}, noModel: true, rig: listing(passTies(store.Waiting))},
	{name: "List passes over ties of leased timers", found: []string{"pages of leased timers"}, noModel: true, rig: listing(passTies(store.Leased))},
	{name: "List passes over ties of dead letters", found: []string{"pages of dead letters"}, noModel: true, rig: listing(passTies(store.Dead))},
	{name: "List compares the beginnings of keys", found: []string{"pages of waiting timers, of long keys"}, noModel: true, rig: listing(func(list lister, q store.Query) (store.Page, error) {
		after, limit := q.After, q.Limit
		q.After, q.Limit = store.Cursor{}, store.MaxItems
		page, err := list(q)
		begins := func(key string) string { return key[:min(len(key), 32)] }
		page.Records = slices.DeleteFunc(page.Records, func(r store.Record) bool {
			return r.At() < after.At || r.At() == after.At && begins(r.Key) <= begins(after.Key)
		})
		return cutPage(page, limit), err
	})},
	{name: "List counts instead of comparing", found: []string{"D12 timers that change"}, noModel: true, rig: func(r *rigged) {
		seen := 0
		listing(func(list lister, q store.Query) (store.Page, error) {
			if q.State != store.Waiting {
				return list(q)
			}
			if q.After == (store.Cursor{}) {
				seen = 0
			}
			limit := q.Limit
			q.After, q.Limit = store.Cursor{}, store.MaxItems
			page, err := list(q)
			page.Records = page.Records[min(seen, len(page.Records)):]
			page = cutPage(page, limit)
			seen += len(page.Records)
			return page, err
		})(r)
	}},
	{name: "List does not have the cancellation", found: []string{"pages of leased timers"}, rig: listedAs(func(r *store.Record) { r.Cancelled = false })},
	{name: "List does not have the successor", found: []string{"pages of leased timers"}, rig: listedAs(func(r *store.Record) { r.SuccessorDue = 0 })},
	{name: "List does not have the token", found: []string{"a leased timer shows"}, rig: listedAs(func(r *store.Record) { r.Token = store.Token{} })},
	{name: "Get does not have the token", found: []string{"a leased timer shows"}, rig: func(r *rigged) {
		r.get = func(ctx context.Context, n int, key string) (store.Record, error) {
			record, err := r.Store.Get(ctx, n, key)
			record.Token = store.Token{}
			return record, err
		}
	}},
	{name: "a filter of prefixes is ignored", found: []string{"a filter"}, noModel: true, rig: filtering(func(f *store.Filter) { f.Prefix = "" })},
	{name: "a filter of topics is ignored", found: []string{"a filter"}, noModel: true, rig: filtering(func(f *store.Filter) { f.Topic = "" })},
	{name: "a filter of errors is ignored", found: []string{"a filter"}, noModel: true, rig: filtering(func(f *store.Filter) { f.Error = "" })},
	{name: "a filter of errors minds the case", found: []string{"a filter"}, noModel: true, rig: listing(func(list lister, q store.Query) (store.Page, error) {
		page, err := list(q)
		page.Records = slices.DeleteFunc(page.Records, func(r store.Record) bool { return !strings.Contains(r.LastError, q.Error) })
		return page, err
	})},
	{name: "a filter ends the list after one scan", found: []string{"D12 a filter scans"}, noModel: true, rig: listing(func(list lister, q store.Query) (store.Page, error) {
		page, err := list(q)
		page.More = page.More && len(page.Records) > 0
		return page, err
	})},
	{name: "a filter scans all timers", found: []string{"D12 a filter scans"}, noModel: true, rig: listing(func(list lister, q store.Query) (store.Page, error) {
		page, err := list(q)
		for page.More && len(page.Records) == 0 && err == nil {
			q.After = page.Next
			page, err = list(q)
		}
		return page, err
	})},
	{name: "a query is not checked", found: []string{"a query that is out of bounds"}, noModel: true, rig: listing(func(list lister, q store.Query) (store.Page, error) {
		if q.Check() != nil {
			return store.Page{}, nil
		}
		return list(q)
	})},
	{name: "a successor does not count as scheduled", found: []string{"Stats counts scheduled", "Stats counts by"}, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			receipt := do(e)
			if receipt.Kind == store.Succeeds {
				r.Mu.Lock()
				defer r.Mu.Unlock()
				r.Parts[store.ShardOf(e.Key, len(r.Parts))].Scheduled--
			}
			return receipt
		})
	}},
	{name: "CountDue counts leased timers", found: []string{"CountDue"}, noModel: true, rig: counting(func(r *rigged, edges []store.Millis, got *store.DueCounts) {
		r.timersOf(0, store.Leased, func(t *oracle.Timer) {
			if t.Due >= edges[0] && t.Due < edges[1] {
				got.Counts[0]++
			}
		})
	})},
	{name: "CountDue counts plans", found: []string{"CountDue"}, noModel: true, rig: counting(func(r *rigged, edges []store.Millis, got *store.DueCounts) {
		r.timersOf(0, store.Waiting, func(t *oracle.Timer) {
			if store.IsPlan(t.Key) && t.Due >= edges[0] && t.Due < edges[1] {
				got.Counts[0]++
			}
		})
	})},
	{name: "CountDue counts timers that are due at the next edge", found: []string{"CountDue"}, noModel: true, rig: func(r *rigged) {
		r.countDue = func(ctx context.Context, n int, edges []store.Millis) (store.DueCounts, error) {
			got, err := r.Store.CountDue(ctx, n, edges)
			r.timersOf(n, store.Waiting, func(t *oracle.Timer) {
				if i := slices.Index(edges, t.Due); i > 0 && !store.IsPlan(t.Key) {
					got.Counts[i-1]++
				}
			})
			return got, err
		}
	}},
	{name: "CountDue ends early", found: []string{"CountDue"}, noModel: true, rig: counting(func(_ *rigged, edges []store.Millis, got *store.DueCounts) {
		got.Through = edges[len(edges)-1]
	})},
	{name: "edges are not checked", found: []string{"edges"}, noModel: true, rig: func(r *rigged) {
		r.countDue = func(ctx context.Context, n int, edges []store.Millis) (store.DueCounts, error) {
			if store.CheckEdges(edges) != nil {
				return store.DueCounts{}, nil
			}
			return r.Store.CountDue(ctx, n, edges)
		}
	}},
	{name: "an extension does not move the horizon", found: []string{"horizons", "D6 an extension"}, rig: func(r *rigged) {
		first := map[store.Millis]store.Millis{}
		r.extends(func(h store.Holder, _ time.Duration, do func(store.Holder) store.ExtendResult) store.ExtendResult {
			old := r.record(h.Key).LeaseEnd
			result := do(h)
			first[r.record(h.Key).LeaseEnd] = old
			return result
		})
		r.horizons = func(ctx context.Context, shards []int) ([]store.Horizon, error) {
			horizons, err := r.Store.Horizons(ctx, shards)
			for i, h := range horizons {
				if old := first[h.NextLeaseEnd]; old != 0 {
					horizons[i].NextLeaseEnd = old
				}
			}
			return horizons, err
		}
	}},
	{name: "an acknowledged timer leaves something", found: []string{"D7 Done", "D1 a scheduled timer"}, rig: func(r *rigged) {
		n := 0
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			n++
			return do(e)
		})
		r.left = func() []string { return make([]string, n) }
	}},

	// Events.
	{name: "no Gap", found: []string{"case 25"}, noModel: true, rig: events(func(e store.Event, do func(store.Event)) {
		if e.Kind != store.Gap {
			do(e)
		}
	})},
	{name: "no cause", found: []string{"case 25"}, noModel: true, rig: func(r *rigged) {
		r.subscribe = func(ctx context.Context, do func(store.Event)) error {
			_ = r.Store.Subscribe(ctx, do)
			return nil
		}
	}},
	{name: "Reschedule announces nothing", found: []string{"an earlier"}, noModel: true, rig: func(r *rigged) {
		r.moves(func(m store.Move, do func(store.Move) store.MoveResult) (result store.MoveResult) {
			r.quietly(func() { result = do(m) })
			return result
		})
	}},
	{name: "End announces nothing", found: []string{"an earlier"}, noModel: true, rig: func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) (result store.EndResult) {
			r.quietly(func() { result = do(e) })
			return result
		})
	}},
	{name: "a cancelled run is not announced", found: []string{"D4 a cancelled run"}, noModel: true, rig: func(r *rigged) {
		r.cancels(func(key string, do func(string) store.CancelResult) (result store.CancelResult) {
			r.quietly(func() { result = do(key) })
			return result
		})
	}},
	{name: "Busy loses the worker", found: []string{"a busy"}, noModel: true, rig: events(func(e store.Event, do func(store.Event)) {
		e.From = ""
		do(e)
	})},
	{name: "events come at once", found: []string{"events come"}, noModel: true, rig: events(func(e store.Event, do func(store.Event)) {
		if e.Kind != store.Busy {
			do(e)
			return
		}
		go do(e)
		go do(e)
	})},

	// Lifecycle of the store.
	{name: "heartbeats do not expire", found: []string{"D10 heartbeats"}, noModel: true, rig: beating(func(h *store.Heartbeat) {
		h.TTL = min(h.TTL*20, store.MaxLease)
	})},
	{name: "leaving is a heartbeat", found: []string{"D10 heartbeats", "D10 Workers"}, noModel: true, rig: beating(func(h *store.Heartbeat) {
		h.TTL = max(h.TTL, time.Second)
	})},
	{name: "live workers have no order", found: []string{"D10 heartbeats"}, noModel: true, rig: func(r *rigged) {
		r.heartbeat = func(ctx context.Context, h store.Heartbeat) ([]string, error) {
			names, err := r.Store.Heartbeat(ctx, h)
			slices.Reverse(names)
			return names, err
		}
	}},
	{name: "a heartbeat's status is cut", found: []string{"D10 Workers", "a heartbeat"}, noModel: true, rig: beating(func(h *store.Heartbeat) {
		h.Status = h.Status[:min(len(h.Status), 1000)]
	})},
	{name: "Workers has no order", found: []string{"D10 Workers"}, noModel: true, rig: workersAs(func(w []store.Worker) []store.Worker {
		slices.Reverse(w)
		return w
	})},
	{name: "Workers lists only live workers", found: []string{"D10 Workers", "D10 dead"}, noModel: true, rig: workersAs(func(w []store.Worker) []store.Worker {
		return slices.DeleteFunc(w, func(w store.Worker) bool { return !w.Live })
	})},
	{name: "Workers reports dead workers as live", found: []string{"D10 Workers"}, noModel: true, rig: workersAs(func(w []store.Worker) []store.Worker {
		for i := range w {
			w[i].Live = true
		}
		return w
	})},
	{name: "Workers tells when heartbeats expire", found: []string{"D10 Workers"}, noModel: true, rig: workersAs(func(w []store.Worker) []store.Worker {
		for i := range w {
			w[i].Heartbeat += 60_000
		}
		return w
	})},
	{name: "dead workers are kept a second longer", found: []string{"D10 dead"}, noModel: true, rig: func(r *rigged) {
		r.workers = func(ctx context.Context) (w []store.Worker, err error) {
			r.shifted(-time.Second, func() { w, err = r.Store.Workers(ctx) })
			return w, err
		}
	}},
	{name: "any number of dead workers is listed", found: []string{"D10 dead"}, noModel: true, rig: func(r *rigged) {
		var last []store.Worker
		r.workers = func(ctx context.Context) (w []store.Worker, err error) {
			if w, err = r.Store.Workers(ctx); len(last) > len(w) && len(w) == store.MaxDeadWorkers {
				for i := range last {
					last[i].Live = false
				}
				return last, err
			}
			last = w
			return w, err
		}
	}},
	{name: "Get ignores its ctx", found: []string{"D12 no call"}, noModel: true, rig: func(r *rigged) {
		r.get = func(ctx context.Context, n int, key string) (store.Record, error) {
			return r.Store.Get(context.WithoutCancel(ctx), n, key)
		}
	}},
	{name: "a closed store counts", found: []string{"a closed"}, noModel: true, rig: func(r *rigged) {
		r.stats = func(ctx context.Context, n int) (store.Stats, error) {
			st, err := r.Store.Stats(ctx, n)
			if r.Closed {
				return st, nil
			}
			return st, err
		}
	}},
	{name: "reopening loses successors", found: []string{"D3 acknowledged"}, leasesEnd: true, rig: func(r *rigged) {
		r.reopen = func() {
			for n := range r.Parts {
				r.timersOf(n, store.Leased, func(t *oracle.Timer) { t.Successor = nil })
			}
		}
	}},
	{name: "leases continue when reopened", found: []string{"D6 reopened"}, leasesEnd: true, rig: func(r *rigged) {
		r.reopen = func() {
			for n := range r.Parts {
				r.timersOf(n, store.Leased, func(t *oracle.Timer) { t.LeaseEnd = r.ms() + 1000 })
			}
		}
	}},
	{name: "fences restart when reopened", found: []string{"D3 D5 fences"}, leasesEnd: true, rig: func(r *rigged) {
		r.reopen = func() {
			for n := range r.Parts {
				r.Parts[n].Fence = 0
			}
		}
	}},
}

// lister lists timers of a shard.
type lister func(store.Query) (store.Page, error)

// listing replaces List.
func listing(f func(lister, store.Query) (store.Page, error)) func(*rigged) {
	return func(r *rigged) {
		r.list = func(ctx context.Context, n int, q store.Query) (store.Page, error) {
			return f(func(q store.Query) (store.Page, error) { return r.Store.List(ctx, n, q) }, q)
		}
	}
}

// counting changes the counts by due time.
func counting(f func(*rigged, []store.Millis, *store.DueCounts)) func(*rigged) {
	return func(r *rigged) {
		r.countDue = func(ctx context.Context, n int, edges []store.Millis) (store.DueCounts, error) {
			got, err := r.Store.CountDue(ctx, n, edges)
			if err == nil {
				f(r, edges, &got)
			}
			return got, err
		}
	}
}

// beating changes heartbeats.
func beating(set func(*store.Heartbeat)) func(*rigged) {
	return func(r *rigged) {
		r.heartbeat = func(ctx context.Context, h store.Heartbeat) ([]string, error) {
			set(&h)
			return r.Store.Heartbeat(ctx, h)
		}
	}
}

// workersAs changes the list of workers.
func workersAs(f func([]store.Worker) []store.Worker) func(*rigged) {
	return func(r *rigged) {
		r.workers = func(ctx context.Context) ([]store.Worker, error) {
			w, err := r.Store.Workers(ctx)
			return f(w), err
		}
	}
}

// filtering changes the parameters of queries.
func filtering(set func(*store.Filter)) func(*rigged) {
	return listing(func(list lister, q store.Query) (store.Page, error) {
		set(&q.Filter)
		return list(q)
	})
}

// listedAs changes the listed records.
func listedAs(set func(*store.Record)) func(*rigged) {
	return listing(func(list lister, q store.Query) (store.Page, error) {
		page, err := list(q)
		for i := range page.Records {
			set(&page.Records[i])
		}
		return page, err
	})
}

func passTies(state store.State) func(lister, store.Query) (store.Page, error) {
	return func(list lister, q store.Query) (store.Page, error) {
		if q.State == state && q.After.Key != "" {
			q.After.At, q.After.Key = q.After.At+1, ""
		}
		return list(q)
	}
}

// cutPage makes a page of a longer one.
func cutPage(p store.Page, limit int) store.Page {
	if len(p.Records) > limit {
		p.Records, p.More = p.Records[:limit], true
	}
	if n := len(p.Records); n > 0 {
		p.Next = store.Cursor{At: p.Records[n-1].At(), Key: p.Records[n-1].Key}
	}
	return p
}
