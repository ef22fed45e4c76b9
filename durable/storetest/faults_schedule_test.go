package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

var scheduleFaults = []fault{
	{name: "early by a millisecond", found: []string{"D2 case 1"}, rig: func(r *rigged) {
		r.claims(func(_ int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			r.shifted(time.Millisecond, func() { got = do(c) })
			return got
		})
	}},
	{name: "late by a millisecond", found: []string{"D2 case 1"}, rig: func(r *rigged) {
		r.claims(func(_ int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			r.shifted(-time.Millisecond, func() { got = do(c) })
			return got
		})
	}},
	{name: "claims timers that are due within the last minute only", found: []string{"case 2:"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			r.during(n, store.Waiting, func(t *oracle.Timer) func() {
				due := t.Due
				if due < 1_000_000 || due > r.ms()-60_000 {
					return nil // the suite's timers that are due in 1970 stay unchanged
				}
				t.Due = store.MaxMillis
				return func() { t.Due = due }
			}, func() { got = do(c) })
			return got
		})
	}},
	{name: "a replaced timer keeps its attempts", found: []string{"D8 a key schedules again"}, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			old := r.record(e.Key)
			receipt := do(e)
			if receipt.Kind == store.Replaced {
				r.timer(e.Key, func(_ *oracle.Shard, t *oracle.Timer) { t.Attempts = old.Attempts })
			}
			return receipt
		})
	}},
	{name: "IfAbsent refuses waiting timers only", found: []string{"D8 IfAbsent"}, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			e.IfAbsent = e.IfAbsent && r.record(e.Key).State == store.Waiting
			return do(e)
		})
	}},
	{name: "the first of two entries of a key counts", found: []string{"D8 a key occurs twice"}, rig: func(r *rigged) {
		r.schedule = func(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
			seen := map[string]bool{}
			var once []store.Entry
			for _, e := range entries {
				if !seen[e.Key] {
					once = append(once, e)
				}
				seen[e.Key] = true
			}
			receipts, h, err := r.Store.Schedule(ctx, n, once)
			for i := len(receipts); err == nil && i < len(entries); i++ {
				receipts = append(receipts, store.Receipt{Kind: store.Replaced, Due: entries[i].At})
			}
			return receipts, h, err
		}
	}},
	{name: "the last of 500 entries is forgotten", found: []string{"D1 a call has 500"}, noModel: true, rig: func(r *rigged) {
		r.schedule = func(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
			receipts, h, err := r.Store.Schedule(ctx, n, entries[:min(len(entries), store.MaxItems-1)])
			if len(receipts) == store.MaxItems-1 && len(entries) == store.MaxItems {
				receipts = append(receipts, receipts[0])
			}
			return receipts, h, err
		}
	}},
	{name: "bodies beyond 8 MiB in a call are forgotten", found: []string{"D12 a call has 16"}, noModel: true, rig: func(r *rigged) {
		size := 0
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			if size += len(e.Body); size > 8<<20 {
				e.Body = nil
			}
			return do(e)
		})
	}},
	{name: "MaxPending refuses a replacement", found: []string{"MaxPending"}, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			s := &r.Parts[store.ShardOf(e.Key, len(r.Parts))]
			if r.Limits.MaxPending > 0 && s.Pending() >= r.Limits.MaxPending && r.record(e.Key).State == store.Waiting && !e.IfAbsent {
				return store.Receipt{Kind: store.Refused}
			}
			return do(e)
		})
	}},
	{name: "a cancelled key never runs again", found: []string{"case 4"}, rig: func(r *rigged) {
		cancelled := map[string]bool{}
		r.cancels(func(key string, do func(string) store.CancelResult) store.CancelResult {
			result := do(key)
			cancelled[key] = cancelled[key] || result == store.Cancelled
			return result
		})
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			receipt := do(e)
			if cancelled[e.Key] {
				r.timer(e.Key, func(s *oracle.Shard, t *oracle.Timer) { delete(s.Timers, t.Key) })
			}
			return receipt
		})
	}},
	{name: "all claims go to shard 0", found: []string{"D13 shards"}, rig: func(r *rigged) {
		r.claim = func(ctx context.Context, _ int, c store.Claim) (store.Claimed, store.Horizon, error) {
			return r.Store.Claim(ctx, 0, c)
		}
	}},
	{name: "Reschedule forgets the attempts", found: []string{"Reschedule moves"}, rig: func(r *rigged) {
		r.moves(func(m store.Move, do func(store.Move) store.MoveResult) store.MoveResult {
			result := do(m)
			if result == store.Moved {
				r.timer(m.Key, func(_ *oracle.Shard, t *oracle.Timer) { t.Attempts = 0 })
			}
			return result
		})
	}},
	{name: "Reschedule moves a leased timer", found: []string{"Reschedule changes nothing"}, rig: func(r *rigged) {
		r.moves(func(m store.Move, do func(store.Move) store.MoveResult) store.MoveResult {
			result := do(m)
			if result == store.MoveRunning {
				r.timer(m.Key, func(_ *oracle.Shard, t *oracle.Timer) { t.Due = m.Due(r.ms()) })
			}
			return result
		})
	}},
	{name: "bodies end at NUL", found: []string{"case 10"}, noModel: true, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			body, _, _ := strings.Cut(string(e.Body), "\x00")
			e.Body = []byte(body)
			return do(e)
		})
	}},
	{name: "bodies are text", found: []string{"case 10"}, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			e.Body = []byte(strings.ToValidUTF8(string(e.Body), "?"))
			return do(e)
		})
	}},
	{name: "keys with braces are not found", found: []string{"case 11"}, noModel: true, rig: func(r *rigged) {
		r.cancels(func(key string, do func(string) store.CancelResult) store.CancelResult {
			if strings.Contains(key, "{") {
				return store.NotFound
			}
			return do(key)
		})
	}},
	{name: "topics are text", found: []string{"topics of"}, noModel: true, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			e.Topic = strings.ToValidUTF8(e.Topic, "?")
			return do(e)
		})
	}},
	{name: "errors are cut between bytes", found: []string{"D9 errors of"}, noModel: true, rig: func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			result := do(e)
			if len(e.Error) > store.MaxError {
				r.timer(e.Key, func(_ *oracle.Shard, t *oracle.Timer) { t.LastError = e.Error[:store.MaxError] })
			}
			return result
		})
	}},
	{name: "delays are rounded down", found: []string{"D2 case 6"}, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			e.After = e.After.Truncate(time.Millisecond)
			return do(e)
		})
	}},
	{name: "at most 1,000 timers are due in a millisecond", found: []string{"case 12"}, noModel: true, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			n := 0
			r.timersOf(store.ShardOf(e.Key, len(r.Parts)), store.Waiting, func(t *oracle.Timer) {
				if t.Due == e.At {
					n++
				}
			})
			if n == 1000 {
				return store.Receipt{Kind: store.Created, Due: e.At}
			}
			return do(e)
		})
	}},
	{name: "due times are seconds of 32 bits", found: []string{"due times"}, noModel: true, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			e.At = min(e.At, 1<<32*1000)
			return do(e)
		})
	}},
	{name: "fences are the clock's", found: []string{"D5 fences grow", "case 17"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			r.Mu.Lock()
			r.Parts[n].Fence = 0
			r.Mu.Unlock()
			return do(c)
		})
	}},
}
