package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// The indexes of plans' keys among a shard's names.
const (
	planLane  = 11
	planIndex = 12
	planNotes = 13
)

// plan returns a swap that creates a plan, due at 1, with occurrences.
func (r *rig) plan(schedule string, occurrences ...int) store.PlanSwap {
	p := store.PlanSwap{Key: store.PlanKey(schedule), ID: store.NewID(), Due: 1, Body: []byte("plan of " + schedule)}
	for _, i := range occurrences {
		p.Entries = append(p.Entries, r.entry(fmt.Sprintf("%s%013d", p.Key, i)))
	}
	return p
}

func (r *rig) swap(swaps ...store.PlanSwap) {
	r.t.Helper()
	results, _, _, err := r.s.SwapPlans(r.ctx, 0, swaps, store.SwapClaim{})
	r.NoError(err)
	for _, result := range results {
		r.Equal(store.Swapped, result)
	}
}

func (r *rig) get(key string) store.Record {
	r.t.Helper()
	record, err := r.s.Get(r.ctx, 0, key)
	r.NoError(err)
	return record
}

// claimPlans claims up to 9 timers and as many plans.
func (r *rig) claimPlans() store.Claimed {
	r.t.Helper()
	c := newClaim(9)
	c.Plans = 9
	claimed, _, err := r.s.Claim(r.ctx, 0, c)
	r.NoError(err)
	return claimed
}

// noPlans checks that no key about plans has any contents.
func (r *rig) noPlans() {
	r.t.Helper()
	names := r.s.shards[0].names
	r.Zero(r.raw.Exists(r.ctx, names[planLane], names[planIndex], names[planNotes]).Val())
	r.Empty(r.plans())
	r.Zero(r.stats().Plans)
}

func (r *rig) plans() []store.Record {
	r.t.Helper()
	page, err := r.s.Plans(r.ctx, 0, "", store.MaxItems)
	r.NoError(err)
	return page
}

// A swap whose first copy arrives after another Store has swapped the plan changes nothing.
func TestLateSwapOfAnotherStore(t *testing.T) {
	t.Parallel()
	r, p, _ := behind(t, startServer(t), Options{})
	r.load()
	first := r.plan("plan")
	r.swap(first)
	second := r.plan("plan", 2)
	second.Expected = first.ID
	request := r.abandon(p, call{name: "swap", f: func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		_, _, _, err := r.s.SwapPlans(ctx, 0, []store.PlanSwap{second}, store.SwapClaim{})
		return nil, err
	}}, store.Lease{})
	third := r.plan("plan", 3)
	third.Expected = first.ID
	results, _, _, err := r.open(r.raw).SwapPlans(r.ctx, 0, []store.PlanSwap{third}, store.SwapClaim{})
	r.NoError(err)
	r.Equal([]store.SwapResult{store.Swapped}, results)
	before := r.timers()
	r.Contains(request.release(t), string(rune(store.SwapLost)))
	r.Equal(before, r.timers())
	r.Equal(third.ID, r.get(first.Key).ID)
}

// At maxmemory, a swap that adds a plan or an occurrence is refused as a whole; a swap that adds
// nothing, or removes, succeeds.
func TestSwapAtMaxMemory(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	r := newRig(t, srv, Options{})
	p := r.plan("plan", 1)
	r.swap(p)
	srv.config(t, "maxmemory", "1")
	next := func() store.PlanSwap {
		n := r.plan("plan")
		n.Expected, n.Due = p.ID, store.MaxMillis
		return n
	}
	before := r.timers()
	adds := next()
	adds.Entries = []store.Entry{r.entry(p.Key + "2")}
	for _, swaps := range [][]store.PlanSwap{{r.plan("other")}, {adds}, {next(), r.plan("other")}} {
		_, _, _, err := r.s.SwapPlans(r.ctx, 0, swaps, store.SwapClaim{})
		r.ErrorIs(err, store.ErrFull)
		r.NotErrorIs(err, store.ErrUnsure)
		r.Equal(before, r.timers())
	}
	again := next()
	again.Entries = p.Entries // exists
	r.swap(again)
	p = again
	lost, _, _, err := r.s.SwapPlans(r.ctx, 0, []store.PlanSwap{r.plan("plan", 3)}, store.SwapClaim{})
	r.NoError(err)
	r.Equal([]store.SwapResult{store.SwapLost}, lost)
	claimed := r.claimPlans()
	r.end(store.Done, claimed.Leases...)
	r.EqualValues(1, r.get(p.Key).History.Done)
	r.swap(store.PlanSwap{Key: p.Key, Expected: p.ID})
	r.noPlans()
}

// A claim repairs the keys of a swap that ends midway; sent again, the swap is executed as a whole.
func TestSwapFailsMidway(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.s = r.open(r.user())
	fails := func(p store.PlanSwap) {
		t.Helper()
		_, _, _, err := r.s.SwapPlans(r.ctx, 0, []store.PlanSwap{p}, store.SwapClaim{})
		r.ErrorContains(err, "user_script")
		r.ErrorIs(err, store.ErrUnsure)
	}
	long := func(p store.PlanSwap) store.PlanSwap {
		p.Body = make([]byte, inline+1)
		return p
	}
	for _, again := range []bool{false, true} {
		p := long(r.plan("plan", 1))
		r.rights("-hset")
		fails(p)
		r.rights("+hset")
		r.Empty(r.plans())
		if again {
			r.swap(p)
			r.Len(r.plans(), 1)
			r.Zero(r.claimPlans().Repaired)
			r.swap(store.PlanSwap{Key: p.Key, Expected: p.ID})
		} else {
			r.Equal(2, r.claimPlans().Repaired)
		}
		r.noPlans()
	}
	_, err := r.s.Cancel(r.ctx, 0, []string{store.PlanKey("plan") + "0000000000001"})
	r.NoError(err)
	for _, lacks := range []string{"hdel", "zrem"} {
		p := long(r.plan("plan"))
		r.swap(p)
		r.rights("-" + lacks)
		fails(store.PlanSwap{Key: p.Key, Expected: p.ID})
		r.rights("+" + lacks)
		r.LessOrEqual(r.claimPlans().Repaired, 1)
		_, _, _, err := r.s.SwapPlans(r.ctx, 0, []store.PlanSwap{{Key: p.Key, Expected: p.ID}}, store.SwapClaim{})
		r.NoError(err)
		r.noPlans()
		r.Zero(r.raw.HLen(r.ctx, r.s.shards[0].names[6]).Val(), "a body is left")
	}
}

// A claim removes the remaining keys of plans that have lost their records.
func TestClaimRepairsPlans(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	names := r.s.shards[0].names
	p := r.plan("plan")
	r.swap(p)
	r.NoError(r.raw.HDel(r.ctx, names[5], p.Key).Err()) // a state without a record
	r.Empty(r.plans())
	r.Equal(1, r.claimPlans().Repaired)
	r.noPlans()

	r.put(r.entry("other"))
	r.claim(1)
	r.swap(p)
	r.NoError(r.raw.ZRem(r.ctx, names[planLane], p.Key).Err()) // a record without a state
	r.Empty(r.plans())
	r.Equal(1, r.claimPlans().Repaired)
	r.noPlans()

	r.swap(p)
	r.Len(r.claimPlans().Leases, 1)
	r.NoError(r.raw.HDel(r.ctx, names[7], p.Key).Err()) // the lease has no holder now
	r.clock.advance(5 * time.Second)
	r.Zero(r.claimPlans().Repaired)
	r.clock.advance(5 * time.Second)
	claimed := r.claimPlans()
	r.Equal(1, claimed.Repaired)
	r.Equal(p.Key, claimed.Leases[0].Key)

	p.Expected, p.ID, p.Body = p.ID, store.NewID(), make([]byte, inline+1)
	r.swap(p)
	r.NoError(r.raw.Del(r.ctx, names[6]).Err()) // a body
	r.Equal(1, r.claimPlans().Repaired)
	r.noPlans()

	p.Expected = store.ID{}
	r.swap(p)
	r.NoError(r.raw.Del(r.ctx, names[4], names[5], names[planLane]).Err()) // all states and heads
	r.claimPlans()
	r.noPlans()
}

// A swap ends leases and replaces bodies of any length, and leaves no old keys.
func TestSwapsLeaveNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	names := r.s.shards[0].names
	var was store.ID
	for i, size := range []int{0, inline + 1, store.MaxBody, inline, inline + 1} {
		p := r.plan("plan")
		p.Expected, p.Body = was, bytes.Repeat([]byte{byte(i)}, size)
		twice := p
		twice.ID, twice.Expected = store.NewID(), p.ID
		r.swap(p, twice)
		was = twice.ID
		r.Equal(p.Body, r.get(p.Key).Body)
		apart := int64(0)
		if size > inline {
			apart = 1
		}
		r.Equal(apart, r.raw.HLen(r.ctx, names[6]).Val())
		l := r.claimPlans().Leases[0]
		r.Equal(p.Body, l.Body)
		r.Equal(p.Body, r.plans()[0].Body)
		if i%2 == 0 {
			r.end(store.Retry, l)
		}
	}
	remove := store.PlanSwap{Key: store.PlanKey("plan"), Expected: was}
	created := r.plan("plan")
	r.swap(remove, created, store.PlanSwap{Key: created.Key, Expected: created.ID})
	r.noPlans()
	r.Empty(left(t, r.raw, r.o.Namespace))
}

// A claim that is sent again gets its plans with their bodies and histories, even after its log has
// expired: then as the same attempts.
func TestClaimOfPlansSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	p, q := r.plan("long", 1), r.plan("short")
	p.Body = make([]byte, inline+1)
	r.swap(p, q)
	r.end(store.Done, r.claim(1).Leases...)
	r.put(r.entry("a"))
	c := newClaim(1)
	c.Plans, c.MaxAttempts = 2, 1
	first := r.claimAs(c, p.Key, q.Key, "a")
	r.EqualValues(1, first.Leases[0].History.Done)
	r.Len(first.Leases[0].Body, inline+1)
	r.Equal(first, r.claimAs(c, p.Key, q.Key, "a"))
	r.swap(r.plan("third"))
	r.put(r.entry("b"))
	r.clock.advance(time.Hour)
	r.NoError(r.raw.Del(r.ctx, r.s.shards[0].names[len(suffixes)]).Err())
	again := r.claimAs(c, p.Key, q.Key, "a")
	for i, l := range again.Leases {
		r.Equal(1, l.Attempt)
		r.Greater(l.Fence, first.Leases[i].Fence)
		r.Equal(first.Leases[i].History, l.History)
	}
	r.end(store.Release, again.Leases[1:]...)
	r.clock.advance(time.Hour)
	r.NoError(r.raw.Del(r.ctx, r.s.shards[0].names[len(suffixes)]).Err())
	r.claimAs(c, p.Key) // and no due plan
}

// Swaps of one call see the effects of the earlier ones.
func TestSwapsOfOneCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	p := r.plan("plan", 1)
	next := r.plan("plan", 1, 2)
	next.Expected = p.ID
	r.swap(p, next)
	r.Equal(p.Entries[0].ID, r.get(p.Entries[0].Key).ID, "an occurrence that exists is replaced")
	r.end(store.Done, r.claim(2).Leases...)
	r.EqualValues(2, r.get(p.Key).History.Done)
	r.swap(store.PlanSwap{Key: p.Key, Expected: next.ID}, r.plan("plan"))
	r.Equal(&store.History{}, r.get(p.Key).History, "a new plan has the history of another")
}

// The history equals store.History after the same ends, whatever the keys and errors.
func TestHistoryOfAnyKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	p := r.plan("plan")
	p.Due = store.MaxMillis
	for _, suffix := range []string{
		"0000000000000", "0000000000001", "9999999999999", "1764000000000", "176400000000", "17640000000001",
		"1764000000000!now", "-764000000000", "176400000000\x00", "1\x00\x01", "\x00\x01", "\xff", "1.64e00000000", " 764000000000",
		"١٢٣٤٥٦", strings.Repeat("x", store.MaxKey-len(p.Key)),
	} {
		if !store.IsPlan(p.Key + suffix) {
			p.Entries = append(p.Entries, r.entry(p.Key+suffix))
		}
	}
	r.swap(p)
	want := &store.History{}
	r.Equal(want, r.get(p.Key).History)
	errs := []string{"", "short", strings.Repeat("e", 100), strings.Repeat("\x00é", 200), strings.Repeat("x", 5000)}
	ended := 0
	for len(want.Last) < store.MaxNotes || ended < 200 {
		claimed := r.claim(3).Leases
		now := store.Millis(r.clock.ms.Load())
		r.clock.advance(time.Duration(rand.IntN(5000)) * time.Millisecond)
		var ends []store.Outcome
		for _, l := range claimed {
			ends = append(ends, store.Outcome{Holder: l.Holder, Kind: []store.OutcomeKind{store.DeadLetter, store.Retry}[rand.IntN(2)], Error: errs[rand.IntN(len(errs))]})
		}
		results, _, err := r.s.End(r.ctx, 0, ends)
		r.NoError(err)
		for i, l := range claimed {
			r.Equal(store.Ended, results[i])
			if ends[i].Kind == store.DeadLetter {
				want.Add(store.Note{
					Key: l.Key, Outcome: store.OccurrenceDead, Begun: now, Ended: store.Millis(r.clock.ms.Load()),
					Attempts: l.Attempt, Error: store.CutNote(store.CutError(ends[i].Error)),
				})
				ended++
			}
		}
		r.Equal(want, r.get(p.Key).History)
		var dead []string
		for _, e := range p.Entries {
			dead = append(dead, e.Key)
		}
		_, _, err = r.s.Requeue(r.ctx, 0, dead)
		r.NoError(err)
	}
	r.Equal(want, r.plans()[0].History)
	// A timer cancelled while it waits keeps the attempts and error of its last run.
	record := r.get(p.Entries[0].Key)
	r.NoError(ignore(r.s.Cancel(r.ctx, 0, []string{record.Key})))
	want.Add(store.Note{
		Key: record.Key, Outcome: store.OccurrenceCancelled, Ended: store.Millis(r.clock.ms.Load()),
		Attempts: record.Attempts, Error: store.CutNote(record.LastError),
	})
	r.Equal(want, r.get(p.Key).History)
	_, err := decodeHistory(p.Key, "\x00\x01")
	r.Error(err)
}

func ignore[T any](_ T, err error) error { return err }

// Whether a plan wakes depends on the order of the ends in one call: a leased one does not.
func TestEndsOfAPlanAndItsOccurrence(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	for i, planFirst := range []bool{true, false} {
		p := r.plan(fmt.Sprint("plan", i), 1)
		p.Due, p.Wake = 2, store.WakeOnEnd
		r.swap(p)
		leases := r.claimPlans().Leases
		r.Len(leases, 2)
		ends := []store.Outcome{{Holder: leases[0].Holder, Kind: store.Release}, {Holder: leases[1].Holder, Kind: store.Done}}
		want := store.Millis(r.clock.ms.Load())
		if !planFirst {
			slices.Reverse(ends)
			want = 2
		}
		_, _, err := r.s.End(r.ctx, 0, ends)
		r.NoError(err)
		r.Equal(want, r.get(p.Key).Due)
		r.swap(store.PlanSwap{Key: p.Key, Expected: p.ID})
	}
}

// A plan wakes once: a second end leaves it as it is, whether the first woke it while it waited or
// came before the swap.
func TestPlanWakesOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	p := r.plan("plan", 1, 2, 3)
	p.Due, p.Wake = store.MaxMillis, store.WakeOnEnd
	r.swap(p)
	cancel := func(i int) {
		t.Helper()
		r.clock.advance(time.Second)
		results, err := r.s.Cancel(r.ctx, 0, []string{p.Entries[i].Key})
		r.NoError(err)
		r.Equal([]store.CancelResult{store.Cancelled}, results)
	}
	cancel(0)
	woken := store.Millis(r.clock.ms.Load())
	r.Equal(woken, r.get(p.Key).Due)
	cancel(1)
	r.Equal(woken, r.get(p.Key).Due)
	q := p
	q.Expected, q.ID, q.Seen = p.ID, store.NewID(), 1
	q.Entries = nil
	r.swap(q)
	woken = store.Millis(r.clock.ms.Load())
	r.Equal(woken, r.get(p.Key).Due)
	cancel(2)
	r.Equal(woken, r.get(p.Key).Due)
}

// MaxPending counts plans, waiting and leased, for timers too.
func TestMaxPendingCountsPlans(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{Limits: store.Limits{MaxPending: 2}})
	r.swap(r.plan("a"), r.plan("b"))
	r.Equal(store.Refused, r.put(r.entry("x"))[0].Kind)
	r.Len(r.claimPlans().Leases, 2)
	r.Equal(store.Refused, r.put(r.entry("x"))[0].Kind)
	results, _, _, err := r.s.SwapPlans(r.ctx, 0, []store.PlanSwap{r.plan("c")}, store.SwapClaim{})
	r.NoError(err)
	r.Equal([]store.SwapResult{store.SwapRefused}, results)
}

// A plan that an expired occurrence wakes is leased by the same claim.
func TestClaimLeasesPlansThatItWakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	p := r.plan("plan", 1)
	p.Due, p.Wake = store.MaxMillis, store.WakeOnDead
	r.swap(p)
	r.Len(r.claim(1).Leases, 1)
	r.clock.advance(time.Minute)
	c := newClaim(1)
	c.Plans, c.MaxAttempts = 1, 1
	claimed := r.claimAs(c, p.Key)
	r.Equal(1, claimed.DeadLettered)
	r.EqualValues(1, claimed.Leases[0].History.Dead)
	r.Equal(store.Millis(r.clock.ms.Load()), claimed.Leases[0].Due)
}

// Swaps with many long bodies or many occurrences are sent in parts.
func TestSwapsAreSentInParts(t *testing.T) {
	t.Parallel()
	r, proxy, _ := behind(t, startServer(t), Options{})
	r.s = r.open(r.raw)
	var swaps []store.PlanSwap
	for i := range 20 {
		p := r.plan(fmt.Sprint("p", i))
		p.Body = make([]byte, store.MaxBody)
		swaps = append(swaps, p)
	}
	require.Equal(t, maxPart/store.MaxBody, r.s.partOfSwaps(swaps))
	r.swap(swaps...)
	var many []store.PlanSwap
	for i := range 20 {
		p := r.plan(fmt.Sprint("q", i), make([]int, store.MaxPlanEntries)...)
		for j := range p.Entries {
			p.Entries[j].Key = fmt.Sprint(p.Key, j)
		}
		many = append(many, p)
	}
	require.Equal(t, 4, r.s.partOfSwaps(many))
	many[0].Entries[0].Body = make([]byte, maxPart)
	require.Equal(t, 1, r.s.partOfSwaps(many))
	many[0].Entries[0].Body = nil
	r.swap(many...)
	r.Equal(40, r.stats().Plans)
	results, _, h, err := r.s.SwapPlans(r.ctx, 0, nil, store.SwapClaim{})
	r.NoError(err)
	r.Empty(results)
	r.EqualValues(1, h.NextDue)

	full := fault{answer: "-OOM command not allowed when used memory > 'maxmemory'.\r\n"}
	r.s = r.open(clientOf(t, proxy.addr))
	r.s.part = 5
	proxy.next(fault{}, full)
	_, _, _, err = r.s.SwapPlans(r.ctx, 0, []store.PlanSwap{r.plan("x"), r.plan("y")}, store.SwapClaim{})
	r.ErrorIs(err, store.ErrUnsure)
	r.ErrorIs(err, store.ErrFull)
}

// The scripts make as many calls for one plan or occurrence as for 500.
func TestPlansTakeAFixedNumberOfCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	life := func(n int) (counts []int) {
		var swaps, removes []store.PlanSwap
		var keys []string
		for i := range n {
			p := r.plan(fmt.Sprint("plan", i))
			p.Body, p.Wake, p.Due = make([]byte, inline+1), store.WakeOnEnd, store.MaxMillis
			swaps, removes = append(swaps, p), append(removes, store.PlanSwap{Key: p.Key, Expected: p.ID})
		}
		r.swap(swaps...)
		count := func(f func()) { counts = append(counts, r.callsOf(f)) }
		put := func() {
			keys = nil
			var entries []store.Entry
			for _, p := range swaps {
				entries = append(entries, r.entry(p.Key+"1"))
				keys = append(keys, p.Key+"1")
			}
			r.put(entries...)
		}
		put()
		leases := r.claim(n).Leases
		count(func() { r.end(store.Done, leases...) }) // all wake
		put()
		count(func() { r.NoError(ignore(r.s.Cancel(r.ctx, 0, keys))) })
		put()
		c := newClaim(n)
		c.Plans = n
		count(func() {
			claimed, _, err := r.s.Claim(r.ctx, 0, c)
			r.NoError(err)
			r.Len(claimed.Leases, min(2*n, n+n))
		})
		count(func() { r.Len(r.plans(), min(n, 511)) })
		count(func() { r.get(swaps[0].Key) })
		count(func() { r.swap(removes[:min(n, 50)]...) })
		r.swap(removes[min(n, 50):]...)
		r.noPlans()
		r.clock.advance(time.Hour)
		for _, key := range keys {
			r.NoError(ignore(r.s.Cancel(r.ctx, 0, []string{key})))
		}
		for r.stats().Leased > 0 {
			r.claim(1)
		}
		return counts
	}
	life(1)
	one := life(1)
	r.Equal(one, life(400))
	for _, n := range one {
		r.LessOrEqual(n, 70)
	}
}

// A schedule takes at most 700 bytes in addition to its body, with all its notes.
func TestMemoryOfPlans(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	const n, body = 1000, 100
	for from := 0; from < n; from += 40 {
		var swaps []store.PlanSwap
		for i := from; i < from+40; i++ {
			p := r.plan(fmt.Sprintf("report-%06d", i))
			p.Body, p.Due = make([]byte, body), store.MaxMillis-store.Millis(i)
			for j := range store.MaxNotes {
				p.Entries = append(p.Entries, r.entry(fmt.Sprintf("%s%d", p.Key, 1764000000000+int64(j))))
			}
			swaps = append(swaps, p)
		}
		r.swap(swaps...)
		r.end(store.Done, r.claim(store.MaxItems).Leases...)
	}
	names := r.s.shards[0].names
	total := int64(0)
	for _, i := range []int{5, 6, 7, planLane, planIndex, planNotes} {
		used, err := r.raw.MemoryUsage(r.ctx, names[i], 0).Result()
		if err != nil {
			r.ErrorIs(err, redis.Nil)
		}
		t.Logf("%s: %d bytes a plan", names[i], used/n)
		total += used
	}
	r.counts(0, 0, 0)
	r.Len(r.plans()[n/3].History.Last, store.MaxNotes)
	t.Logf("%d bytes a plan besides its body", total/n-body)
	r.LessOrEqual(total/n-body, int64(700))
}
