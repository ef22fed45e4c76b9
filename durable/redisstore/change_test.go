package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// D1, D10: bodies of more than 2 KiB have a separate field, which must be removed with the
// timer, however the timer ends.
func TestLongBodiesLeaveNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	sizes := []int{0, 1, inline, inline + 1, store.MaxBody}
	body := func(n int) []byte { return bytes.Repeat([]byte{0, byte(n), 0xff}, n/3+1)[:n] }
	blobs := func(n int64) {
		t.Helper()
		r.Equal(n, r.raw.HLen(r.ctx, r.s.shards[0].names[6]).Val())
	}
	entry := func(n int) store.Entry {
		e := r.entry("a")
		e.Body, e.Topic = body(n), topicOf(n%store.Lanes)
		return e
	}
	check := func(n int) {
		t.Helper()
		record, err := r.s.Get(r.ctx, 0, "a")
		r.NoError(err)
		r.True(bytes.Equal(body(n), record.Body))
	}
	for _, n := range sizes {
		for _, m := range sizes {
			count := int64(0)
			if m > inline {
				count = 1
			}
			r.put(entry(n))
			r.put(entry(m)) // replaced
			check(m)
			blobs(count)
			r.put(entry(n), entry(m)) // twice in one call
			check(m)
			blobs(count)
			l := r.claim(1).Leases[0]
			r.True(bytes.Equal(body(m), l.Body))
			r.put(entry(m), entry(n)) // successors
			r.put(entry(n), entry(m))
			check(m)
			blobs(2 * count)
			r.end(store.Done, l)
			check(m)
			blobs(count)
			l = r.claim(1).Leases[0]
			r.put(entry(n))
			_, err := r.s.Cancel(r.ctx, 0, []string{"a"}) // with a successor
			r.NoError(err)
			blobs(count)
			r.put(entry(m))
			r.clock.advance(10 * time.Second) // the lease expires, and its successor is leased
			l = r.claim(1).Leases[0]
			r.True(bytes.Equal(body(m), l.Body))
			blobs(count)
			r.end(store.DeadLetter, l)
			check(m)
			r.put(entry(m)) // instead of the dead letter
			blobs(count)
			r.end(store.DeadLetter, r.claim(1).Leases[0])
			_, err = r.s.Purge(r.ctx, 0, []string{"a"})
			r.NoError(err)
			blobs(0)
			r.put(entry(m))
			_, err = r.s.Cancel(r.ctx, 0, []string{"a"})
			r.NoError(err)
			blobs(0)
			r.Empty(left(t, r.raw, r.o.Namespace))
		}
	}
}

// A waiting timer has a run only if there is something to remember.
func TestRunsAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	runs := func(n int64) {
		t.Helper()
		r.Equal(n, r.raw.HLen(r.ctx, r.s.shards[0].names[7]).Val())
	}
	r.put(r.entry("a"))
	runs(0)
	for _, kind := range []store.OutcomeKind{store.Release, store.Snooze} {
		l := r.claim(1).Leases[0]
		runs(1)
		r.end(kind, l)
		runs(0)
	}
	r.end(store.Retry, r.claim(1).Leases[0])
	runs(1)
	r.end(store.DeadLetter, r.claim(1).Leases[0])
	_, _, err := r.s.Requeue(r.ctx, 0, []string{"a"})
	r.NoError(err)
	runs(1) // the error
	r.end(store.Release, r.claim(1).Leases[0])
	record, err := r.s.Get(r.ctx, 0, "a")
	r.NoError(err)
	r.Equal("failed", record.LastError)
	r.Zero(record.Attempts)
	r.end(store.Done, r.claim(1).Leases[0])
	runs(0)
	// A dead letter without an error.
	r.put(r.entry("a"))
	l := r.claim(1).Leases[0]
	_, _, err = r.s.End(r.ctx, 0, []store.Outcome{{Holder: l.Holder, Kind: store.DeadLetter}})
	r.NoError(err)
	runs(1)
	_, _, err = r.s.Requeue(r.ctx, 0, []string{"a"})
	r.NoError(err)
	runs(0)
}

// D12: a claim reads the bodies that it returns, and no others.
func TestClaimIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	for i := range 40 {
		e := r.entry(fmt.Sprintf("k%02d", i))
		e.Body = make([]byte, store.MaxBody)
		r.put(e)
	}
	r.Len(r.claim(40).Leases, store.MaxClaim/store.MaxBody)
	c := newClaim(40)
	c.MaxBytes = 1
	claimed, _, err := r.s.Claim(r.ctx, 0, c)
	r.NoError(err)
	r.Len(claimed.Leases, 1)
	// Sent again, it gets the same leases, with the bodies.
	again, _, err := r.s.Claim(r.ctx, 0, c)
	r.NoError(err)
	r.Equal(claimed, again)
}

// D12: many long bodies are sent in parts.
func TestLongBodiesAreSentInParts(t *testing.T) {
	t.Parallel()
	r, p, _ := behind(t, startServer(t), Options{})
	var entries []store.Entry
	for i := range 40 {
		e := r.entry(fmt.Sprint("k", i%39)) // the last replaces the first
		e.Body = bytes.Repeat([]byte{byte(i)}, store.MaxBody)
		entries = append(entries, e)
	}
	require.Equal(t, maxPart/store.MaxBody, r.s.partOf(entries))
	require.Equal(t, 1, r.s.partOf([]store.Entry{{Body: make([]byte, maxPart)}, {Body: make([]byte, 1)}}))
	r.s = r.open(r.raw) // the proxy takes small requests only
	receipts := r.put(entries...)
	r.Len(receipts, 40)
	for i, receipt := range receipts {
		want := store.Created
		if i == 39 {
			want = store.Replaced
		}
		r.Equal(want, receipt.Kind)
	}
	record, err := r.s.Get(r.ctx, 0, "k0")
	r.NoError(err)
	r.Equal(entries[39].Body, record.Body)
	receipts, h, err := r.s.Schedule(r.ctx, 0, nil)
	r.NoError(err)
	r.Empty(receipts)
	r.Equal(store.Millis(1), h.NextDue)
	p.next()

	// The second part is refused.
	full := fault{answer: "-OOM command not allowed when used memory > 'maxmemory'.\r\n"}
	r.s = r.open(clientOf(t, p.addr))
	r.s.part = 5
	small := []store.Entry{r.entry("x"), r.entry("y")}
	p.next(fault{}, full)
	_, _, err = r.s.Schedule(r.ctx, 0, small)
	r.ErrorIs(err, store.ErrUnsure)
	r.ErrorIs(err, store.ErrFull)
	p.next(full)
	_, _, err = r.s.Schedule(r.ctx, 0, small)
	r.ErrorIs(err, store.ErrFull)
	r.NotErrorIs(err, store.ErrUnsure)
}

func TestMaxPendingOfOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{Limits: store.Limits{MaxPending: 1}})
	r.Equal([]store.Receipt{{Kind: store.Created, Due: 1}, {Kind: store.Refused}}, r.put(r.entry("a"), r.entry("b")))
	r.Equal([]store.Receipt{{Kind: store.Refused}, {Kind: store.Replaced, Due: 1}}, r.put(r.entry("b"), r.entry("a")))
	r.end(store.Done, r.claim(1).Leases...)
	r.Equal([]store.Receipt{{Kind: store.Created, Due: 1}}, r.put(r.entry("b")))
}

// The end of a short body may equal the reference of another timer's long body.
func TestBodyThatEndsLikeAReference(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	long := r.entry("long")
	long.At, long.Body = store.MaxMillis, make([]byte, inline+1)
	r.put(long)
	short := func() store.Entry {
		e := r.entry("short")
		e.Body = []byte(r.raw.HKeys(r.ctx, r.s.shards[0].names[6]).Val()[0])
		return e
	}
	r.put(short())
	r.put(short()) // replaces itself
	for _, end := range []func(store.Lease){
		func(l store.Lease) { r.end(store.Done, l) },
		func(l store.Lease) {
			r.end(store.DeadLetter, l)
			_, err := r.s.Purge(r.ctx, 0, []string{"short"})
			r.NoError(err)
		},
		func(l store.Lease) {
			r.put(short())
			r.put(short()) // a successor replaces another
			_, err := r.s.Cancel(r.ctx, 0, []string{"short"})
			r.NoError(err)
			r.end(store.Done, l)
		},
		func(l store.Lease) {
			r.put(short())
			r.end(store.Done, l)
			_, err := r.s.Cancel(r.ctx, 0, []string{"short"})
			r.NoError(err)
		},
	} {
		end(r.claim(1).Leases[0])
		record, err := r.s.Get(r.ctx, 0, "long")
		r.NoError(err)
		r.Equal(long.Body, record.Body)
		r.put(short())
	}
}

// D2: between two milliseconds of the engine, a timer without a delay is due at once. Any delay
// counts from the later millisecond, as a lease does.
func TestDelaysBetweenMilliseconds(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	const now = 1_000_000
	r.s.clock = func() string { return fmt.Sprintf("=%d.5", now) }
	soon := func(key string, after time.Duration) store.Entry {
		e := r.entry(key)
		e.At, e.After = 0, after
		return e
	}
	receipts := r.put(soon("at once", 0), soon("in 1 ms", time.Millisecond))
	r.EqualValues(now, receipts[0].Due)
	r.EqualValues(now+2, receipts[1].Due)
	leases := r.claim(9).Leases
	r.Len(leases, 1)
	r.EqualValues(now+1+10_000, leases[0].End)
	_, end, err := r.s.Extend(r.ctx, 0, []store.Holder{leases[0].Holder}, time.Second)
	r.NoError(err)
	r.EqualValues(now+1+1000, end)
}

// Case 27, D5: fences are exact, and grow by one from the engine's microseconds or from the last.
func TestFencesAreExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.clock.ms.Store(9_007_199_254_000) // in microseconds just below 2^53
	var entries []store.Entry
	for i := range 10 {
		entries = append(entries, r.entry(strconv.Itoa(i)))
	}
	r.put(entries...)
	fence := uint64(9_007_199_254_000_000)
	for range 2 {
		for _, l := range r.claim(5).Leases {
			r.Equal(fence, l.Fence)
			record, err := r.s.Get(r.ctx, 0, l.Key)
			r.NoError(err)
			r.Equal(fence, record.Fence)
			fence++
		}
		r.Equal(strconv.FormatUint(fence-1, 10), r.raw.HGet(r.ctx, r.s.shards[0].names[10], "f").Val())
	}
}

// callsOf returns how many commands the server executes while f runs.
func (r *rig) callsOf(f func()) (n int) {
	r.t.Helper()
	r.NoError(r.raw.ConfigResetStat(r.ctx).Err())
	f()
	for line := range strings.Lines(r.raw.Info(r.ctx, "commandstats").Val()) {
		var count int
		if name, rest, ok := strings.Cut(line, ":calls="); ok && !strings.Contains(name, "config") && !strings.Contains(name, "info") {
			_, _ = fmt.Sscanf(rest, "%d,", &count)
			n += count
		}
	}
	return n
}

// D12: every script makes the same number of calls for one item as for 500.
func TestScriptsMakeAFixedNumberOfCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	life := func(n int) (counts []int) {
		var entries, successors []store.Entry
		var keys []string
		var moves []store.Move
		for i := range n {
			e := r.entry(fmt.Sprint("k", i))
			e.Body = make([]byte, inline+1)
			entries = append(entries, e)
			e.Body = e.Body[1:]
			successors = append(successors, e)
			keys = append(keys, e.Key)
			moves = append(moves, store.Move{Key: e.Key, At: 1})
		}
		var leases []store.Lease
		claim := func() { leases = r.claim(n).Leases; r.Equal(n, len(leases)) }
		deadLetter := func() { r.end(store.DeadLetter, leases...) }
		cancel := func() { _, err := r.s.Cancel(r.ctx, 0, keys); r.NoError(err) }
		count := func(steps ...func()) {
			for _, f := range steps {
				counts = append(counts, r.callsOf(f))
			}
		}
		count(
			func() { r.put(entries...) },
			func() { r.put(entries...) },
			func() { _, _, err := r.s.Reschedule(r.ctx, 0, moves); r.NoError(err) },
			func() { _, err := r.s.List(r.ctx, 0, store.Query{State: store.Waiting, Limit: n}); r.NoError(err) },
			claim,
			func() { r.put(successors...) },
			func() {
				var holders []store.Holder
				for _, l := range leases {
					holders = append(holders, l.Holder)
				}
				_, _, err := r.s.Extend(r.ctx, 0, holders, time.Second)
				r.NoError(err)
			},
			func() { // the leases expire, and successors are leased
				r.clock.advance(time.Hour)
				leases = r.claim(n).Leases
				r.Equal(min(n, 100), len(leases))
			},
		)
		for len(leases) < n {
			more := r.claim(n).Leases
			r.NotEmpty(more)
			leases = append(leases, more...)
		}
		count(
			deadLetter,
			func() { _, err := r.s.List(r.ctx, 0, store.Query{State: store.Dead, Limit: n}); r.NoError(err) },
			func() { _, _, err := r.s.Requeue(r.ctx, 0, keys); r.NoError(err) },
			claim,
			cancel,
			func() { r.end(store.Done, leases...) },
			func() { r.put(entries...) },
			claim, deadLetter,
			func() { _, err := r.s.Purge(r.ctx, 0, keys); r.NoError(err) },
			func() { r.put(entries...) },
			cancel,
		)
		r.counts(0, 0, 0)
		return counts
	}
	life(1) // loads the scripts
	one := life(1)
	r.Equal(one, life(store.MaxItems))
	for _, n := range one {
		require.LessOrEqual(t, n, 70)
	}
}

// D10: after all timers have ended, only a record for each shard remains. All other keys expire.
func TestEmptyMeansEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{Shards: 3})
	for n := range 3 {
		for i := 0; i < 30; i++ {
			if key := fmt.Sprint("k", i); store.ShardOf(key, 3) == n {
				_, _, err := r.s.Schedule(r.ctx, n, []store.Entry{r.entry(key)})
				r.NoError(err)
			}
		}
		claimed, _, err := r.s.Claim(r.ctx, n, newClaim(100))
		r.NoError(err)
		r.NotEmpty(claimed.Leases)
		for i, l := range claimed.Leases {
			kind := store.Done
			if i%2 == 0 {
				kind = store.DeadLetter
			}
			_, _, err := r.s.End(r.ctx, n, []store.Outcome{{Holder: l.Holder, Kind: kind, Error: "x"}})
			r.NoError(err)
			_, err = r.s.Purge(r.ctx, n, []string{l.Key})
			r.NoError(err)
		}
	}
	r.beat("w", time.Minute)
	r.Empty(left(t, r.raw, r.o.Namespace))
	for _, key := range r.raw.Keys(r.ctx, "*").Val() {
		if strings.HasSuffix(key, ":m") {
			continue
		}
		ttl := r.raw.PTTL(r.ctx, key).Val()
		r.Greater(ttl, time.Duration(0), key)
		r.LessOrEqual(ttl, time.Minute+store.KeepWorker, key)
	}
}

// D10: heartbeats expire an hour after the last one, even without a request.
func TestHeartbeatsExpire(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.Equal([]string{"b"}, r.beat("b", 3*time.Hour))
	r.Equal([]string{"a", "b"}, r.beat("a", 2*time.Hour))
	for _, key := range r.s.workers {
		ttl := r.raw.PTTL(r.ctx, key).Val()
		r.Greater(ttl, 3*time.Hour)
		r.LessOrEqual(ttl, 4*time.Hour)
	}
	r.clock.advance(2*time.Hour - time.Millisecond)
	r.Equal([]string{"a", "b", "c"}, r.beat("c", 9*time.Hour))
	r.clock.advance(time.Millisecond)
	r.Equal([]string{"b", "c"}, r.beat("c", 9*time.Hour))
	r.clock.advance(time.Hour)
	r.Equal([]string{"c", "d"}, r.beat("d", time.Hour))
	r.Equal([]string{"d"}, r.beat("c", 0))
	r.Equal([]string{}, r.beat("d", 0))
	r.beat("a", 0)
	r.Equal([]string{}, r.beat("b", 0))
	r.Zero(r.raw.Exists(r.ctx, r.s.workers[:]...).Val())
}

// However many workers have died, one heartbeat removes the oldest, from both keys.
func TestManyDeadWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.beat("dies", time.Minute)
	r.beat("lives", 2*time.Hour)
	r.clock.advance(time.Minute)
	expired := r.raw.ZScore(r.ctx, r.s.workers[0], "dies").Val()
	for i := range 3500 {
		name := fmt.Sprintf("w%04d", i)
		r.NoError(r.raw.ZAdd(r.ctx, r.s.workers[0], redis.Z{Score: expired - float64(i), Member: name}).Err())
		r.NoError(r.raw.HSet(r.ctx, r.s.workers[1], name, "8 bytes.status").Err())
	}
	workers, err := r.s.Workers(r.ctx)
	r.NoError(err)
	r.Len(workers, store.MaxDeadWorkers+1)
	r.Equal([]string{"lives"}, r.beat("lives", 2*time.Hour))
	r.EqualValues(store.MaxDeadWorkers+2, r.raw.ZCard(r.ctx, r.s.workers[0]).Val(), "and the time of the last request")
	r.EqualValues(store.MaxDeadWorkers+1, r.raw.HLen(r.ctx, r.s.workers[1]).Val())
	again, err := r.s.Workers(r.ctx)
	r.NoError(err)
	names := func(list []store.Worker) (names []string) {
		for _, w := range list {
			names = append(names, w.Name)
		}
		return names
	}
	r.True(slices.Equal(names(workers), names(again)), "what is removed was not listed")
	r.clock.advance(store.KeepWorker)
	r.Equal([]string{"lives"}, r.beat("lives", time.Minute))
	r.EqualValues(2, r.raw.ZCard(r.ctx, r.s.workers[0]).Val())
	r.EqualValues(1, r.raw.HLen(r.ctx, r.s.workers[1]).Val())
}

func TestClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.NoError(r.s.Close())
	r.NoError(r.s.Close())
	_, _, err := r.s.Schedule(r.ctx, 0, []store.Entry{r.entry("a")})
	r.ErrorIs(err, store.ErrClosed)
	_, err = r.s.Get(r.ctx, 0, "a")
	r.ErrorIs(err, store.ErrClosed)
	r.ErrorIs(r.s.Subscribe(r.ctx, func(store.Event) {}), store.ErrClosed)
	r.NoError(r.raw.Ping(r.ctx).Err(), "the client is not the store's to close")
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err = r.open(r.raw).Horizons(ctx, []int{0})
	r.ErrorIs(err, context.Canceled)
}
