package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
)

func TestTimersOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 5*time.Hour)
		ctx := context.Background()
		body := []byte("a\x00\xff") // case 10
		due := r.now().Add(time.Minute)
		require.Equal(t, Receipt{Kind: Created, Due: store.MillisAt(due)}, r.add(Timer{Key: "{k}", Topic: "t", Body: body, At: due})) // case 11
		body[0] = 'b'                                                                                                                 // it was copied
		info := r.get("{k}")
		require.NotZero(t, info.ID)
		info.ID = ID{}
		require.Equal(t, Info{Key: "{k}", Topic: "t", Body: []byte("a\x00\xff"), State: Waiting, Due: due.Truncate(time.Millisecond)}, info)

		require.Equal(t, Exists, r.add(Timer{Key: "{k}", IfAbsent: true}).Kind)
		require.Equal(t, Receipt{Kind: Replaced, Due: store.MillisAt(r.now().Add(time.Second))}, r.schedule("{k}", time.Second))
		move, err := r.timers.ResetAt(ctx, "{k}", due)
		require.NoError(t, err)
		require.Equal(t, Moved, move)
		require.Equal(t, due, r.get("{k}").Due)
		move, err = r.timers.Reset(ctx, "{k}", time.Hour)
		require.NoError(t, err)
		require.Equal(t, Moved, move)
		require.Equal(t, r.now().Add(time.Hour), r.get("{k}").Due)
		move, err = r.timers.Reset(ctx, "none", time.Hour)
		require.NoError(t, err)
		require.Equal(t, MoveAbsent, move)

		st := r.stats()
		require.Equal(t, Stats{Shards: 4, Waiting: 1, Scheduled: 2, Now: r.now(), NextDue: r.now().Add(time.Hour)}, st)
		for _, want := range []CancelResult{Cancelled, NotFound} {
			got, err := r.timers.Cancel(ctx, "{k}")
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		r.requireRemoved("{k}")

		// Within 1970's first millisecond, and in the past: at once.
		require.Equal(t, Millis(1), r.add(Timer{Key: "old", At: time.UnixMilli(0)}).Due)
		require.Equal(t, store.MillisAt(r.now()), r.schedule("now", -time.Hour).Due)
	})
}

// All checks precede sending, and errors name field, value and bound.
func TestChecksComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 0)
		ctx := context.Background()
		good := Timer{Key: "good"}
		for want, timer := range map[string]Timer{
			"key is 0 bytes long, must be 1 to 512":                                {},
			"key is 513 bytes long, must be 1 to 512":                              {Key: strings.Repeat("k", 513)},
			`topic of timer "k" is 129 bytes long, must be at most 128`:            {Key: "k", Topic: strings.Repeat("t", 129)},
			`body of timer "k" is 65537 bytes long, must be at most 65536`:         {Key: "k", Body: make([]byte, 65537)},
			`timer "k" is due at 1969-12-31 23:59:59.999 +0000 UTC, must be at 19`: {Key: "k", At: time.UnixMilli(-1).UTC()},
			`must be at 1970-01-01 00:00:00 +0000 UTC to 2262-04-11 23:47:16.854`:  {Key: "k", At: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)},
			`timer "k" has both At, 1970-01-01 00:00:01 +0000 UTC, and After, 1s`:  {Key: "k", At: time.Unix(1, 0).UTC(), After: time.Second},
		} {
			_, err := r.timers.Schedule(ctx, timer)
			require.ErrorContains(t, err, want)
			_, err = r.timers.ScheduleMany(ctx, []Timer{good, timer})
			require.ErrorContains(t, err, want)
		}
		_, err := r.timers.ResetAt(ctx, "k", time.Time{})
		require.ErrorContains(t, err, `timer "k" is due at 0001-01-01 00:00:00 +0000 UTC, must be at`)
		long := strings.Repeat("k", 513)
		_, err = r.timers.Reset(ctx, long, 0)
		require.ErrorContains(t, err, "513 bytes")
		_, err = r.timers.Cancel(ctx, long)
		require.ErrorContains(t, err, "513 bytes")
		_, err = r.timers.Get(ctx, long)
		require.ErrorContains(t, err, "513 bytes")
		_, err = r.timers.Requeue(ctx, "good", long)
		require.ErrorContains(t, err, "513 bytes")
		_, err = r.timers.Purge(ctx, "good", long)
		require.ErrorContains(t, err, "513 bytes")
		require.Empty(t, r.faults.countAll())

		ended, cancel := context.WithCancelCause(ctx)
		cancel(errBoom)
		_, err = r.timers.Schedule(ended, good)
		require.ErrorIs(t, err, errBoom)
		require.Empty(t, r.faults.countAll())
		require.PanicsWithValue(t, "durable: the context is nil", func() {
			_, _ = r.timers.Get(nil, "k")
		})
	})
}

func TestNewRefuses(t *testing.T) {
	s, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	_, err = New(nil, Options{})
	require.EqualError(t, err, "durable: the store is nil")
	_, err = New(s, Options{CallTimeout: time.Millisecond})
	require.EqualError(t, err, "durable: Options.CallTimeout is 1ms, must be 10ms to 10m0s")
}

// Calls that arrive while a request is in flight are joined into the next request, up to 500
// timers.
func TestConcurrentSchedulesAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		gate := make(chan struct{})
		r.faults.set(func(context.Context, string, int) error { <-gate; return nil }, nil)
		errs := make(chan error)
		start := func(key string) {
			go func() {
				_, err := r.timers.Schedule(context.Background(), Timer{Key: key, After: time.Hour})
				errs <- err
			}()
			synctest.Wait()
		}
		start("first")
		for i := range 600 {
			start(fmt.Sprint("k", i))
		}
		close(gate)
		for range 601 {
			require.NoError(t, <-errs)
		}
		require.Equal(t, []int{1, 500, 100}, sizesOf(r.faults.adds))
		require.Equal(t, 601, r.stats().Waiting)
	})
}

// A request has at most 1 MiB of bodies, however many calls wait.
func TestRequestsAreBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		timers := make([]Timer, 40)
		for i := range timers {
			timers[i] = Timer{Key: fmt.Sprint(i), Body: make([]byte, store.MaxBody), After: time.Hour}
		}
		receipts, err := r.timers.ScheduleMany(context.Background(), timers)
		require.NoError(t, err)
		require.Len(t, receipts, 40)
		require.Equal(t, []int{16, 16, 8}, sizesOf(r.faults.adds))
	})
}

// Calls are joined up to exactly 1 MiB of bodies.
func TestJoinedCallsAreBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		gate := make(chan struct{})
		r.faults.set(func(context.Context, string, int) error { <-gate; return nil }, nil)
		errs := make(chan error)
		for call, n := range []int{1, 8, 8, 8} {
			timers := make([]Timer, n)
			for i := range timers {
				timers[i] = Timer{Key: fmt.Sprint(call, "-", i), Body: make([]byte, store.MaxBody), After: time.Hour}
			}
			go func() {
				_, err := r.timers.ScheduleMany(context.Background(), timers)
				errs <- err
			}()
			synctest.Wait()
		}
		close(gate)
		for range 4 {
			require.NoError(t, <-errs)
		}
		require.Equal(t, []int{1, 16, 8}, sizesOf(r.faults.adds))
	})
}

// The end of a caller's ctx ends only its own wait. Its call is withdrawn if it was not sent.
func TestCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		gate := make(chan struct{})
		r.faults.set(func(context.Context, string, int) error { <-gate; return nil }, nil)
		body := []byte("as it was")
		schedule := func(ctx context.Context, key string) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := r.timers.Schedule(ctx, Timer{Key: key, Body: body, After: time.Hour})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		sent, waits := schedule(ctx, "sent"), schedule(ctx, "waits")
		other := schedule(context.Background(), "other")
		cancel(errBoom)
		err := <-sent
		require.ErrorIs(t, err, ErrUnsure)
		require.ErrorIs(t, err, errBoom)
		err = <-waits
		require.ErrorIs(t, err, errBoom)
		require.NotErrorIs(t, err, ErrUnsure)
		body[0] = 'x' // the request is still in flight, with a copy
		close(gate)
		require.NoError(t, <-other)
		require.Equal(t, "as it was", string(r.get("sent").Body))
		require.Equal(t, "as it was", string(r.get("other").Body))
		r.requireRemoved("waits")
	})
}

// After Schedule has returned ErrUnsure because its ctx ended, its request may still be in flight.
// Calls about its keys wait for the end of that request, so that it cannot take effect after them;
// calls about other keys do not.
func TestCallsWaitForAnAbandonedSchedule(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		dead bool // the key is a dead letter before
		call func(*testing.T, *rig)
	}{
		"Cancel": {call: func(t *testing.T, r *rig) {
			got, err := r.timers.Cancel(ctx, "k")
			require.NoError(t, err)
			require.Equal(t, Cancelled, got)
			r.requireRemoved("k")
		}},
		"Reschedule": {call: func(t *testing.T, r *rig) {
			got, err := r.timers.Reset(ctx, "k", time.Hour)
			require.NoError(t, err)
			require.Equal(t, Moved, got)
		}},
		"Get": {call: func(t *testing.T, r *rig) { require.Equal(t, Waiting, r.get("k").State) }},
		"Requeue": {dead: true, call: func(t *testing.T, r *rig) {
			got, err := r.timers.Requeue(ctx, "k")
			require.NoError(t, err)
			require.Equal(t, []RequeueResult{RequeueExists}, got)
		}},
		"Purge": {dead: true, call: func(t *testing.T, r *rig) {
			n, err := r.timers.Purge(ctx, "k")
			require.NoError(t, err)
			require.Zero(t, n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, store.Limits{}, 0)
				if c.dead {
					w := r.worker(func(context.Context, Fired) error { return Discard(errBoom) }, WorkerOptions{})
					r.schedule("k", 0)
					pass(time.Second)
					require.NoError(t, w.stop())
				}
				release := r.abandon(Timer{Key: "k", After: time.Second})
				done := make(chan struct{})
				go func() { defer close(done); c.call(t, r) }()
				_, err := r.timers.Cancel(ctx, "other")
				require.NoError(t, err)
				pass(5 * time.Second)
				select {
				case <-done:
					t.Fatal("the call did not wait for the request of Schedule")
				default:
				}
				release()
				<-done
				require.Empty(t, r.timers.schedules[0].abandoned)
			})
		})
	}
}

// The wait for the request of a Schedule ends with the caller's ctx, and nothing is sent.
func TestWaitForAnAbandonedScheduleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		release := r.abandon(Timer{Key: "a"}, Timer{Key: "b"})
		for _, key := range []string{"a", "b"} {
			ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errBoom)
			_, err := r.timers.Cancel(ctx, key)
			cancel()
			require.ErrorIs(t, err, errBoom)
			require.NotErrorIs(t, err, ErrUnsure)
		}
		require.Zero(t, r.faults.count("cancel"))
		release()
		require.Equal(t, Waiting, r.get("a").State)
	})
}

// abandon leaves a call of Schedule whose request is in flight until release is called.
func (r *rig) abandon(timers ...Timer) (release func()) {
	r.t.Helper()
	gate := make(chan struct{})
	r.faults.set(func(ctx context.Context, call string, _ int) error {
		if call == "schedule" {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
		return nil
	}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := r.timers.ScheduleMany(ctx, timers)
	require.ErrorIs(r.t, err, ErrUnsure)
	return func() { close(gate); synctest.Wait() }
}

// No call without a deadline.
func TestCallsHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		r.faults.set(func(ctx context.Context, _ string, _ int) error { return late(ctx, time.Hour) }, nil)
		began := time.Now()
		_, err := r.timers.Schedule(context.Background(), Timer{Key: "k"})
		require.ErrorIs(t, err, ErrUnsure)
		require.Equal(t, defaultCallTimeout, time.Since(began))
		_, err = r.timers.Cancel(context.Background(), "k")
		require.ErrorIs(t, err, ErrUnsure)
		require.Equal(t, 2*defaultCallTimeout, time.Since(began))
	})
}

func TestScheduleMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 0)
		ctx := context.Background()
		var timers []Timer
		for i := range 3000 {
			timers = append(timers, Timer{Key: fmt.Sprint("k", i), After: time.Duration(i+1) * time.Millisecond})
		}
		timers = append(timers, Timer{Key: "k7", After: time.Hour}) // in order: it replaces
		r.faults.set(func(ctx context.Context, _ string, _ int) error { return late(ctx, time.Second) }, nil)
		began := time.Now()
		receipts, err := r.timers.ScheduleMany(ctx, timers)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(began)) // the shards concurrently, each with two requests
		require.Len(t, receipts, 3001)
		for i, got := range receipts[:3000] {
			require.Equal(t, Created, got.Kind)
			require.Equal(t, store.Millis(i+1), got.Due-store.MillisAt(r.now())+2000-1000*store.Millis(requestOf(timers, i)))
		}
		require.Equal(t, Replaced, receipts[3000].Kind)

		receipts, err = r.timers.ScheduleMany(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, receipts)
	})
}

// requestOf returns the number of timer i's request within its shard, from 1.
func requestOf(timers []Timer, i int) int {
	n := 0
	for _, timer := range timers[:i] {
		if store.ShardOf(timer.Key, 4) == store.ShardOf(timers[i].Key, 4) {
			n++
		}
	}
	return n/store.MaxItems + 1
}

func TestScheduleManyInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{MaxPending: 2}, 0)
		ctx := context.Background()
		a, b := keysOf(0, 2, 3), keysOf(1, 2, 2)
		r.faults.set(func(_ context.Context, _ string, shard int) error {
			if shard == 1 {
				return errBoom
			}
			return nil
		}, nil)
		timers := []Timer{{Key: a[0]}, {Key: b[0]}, {Key: a[1]}, {Key: b[1]}, {Key: a[2]}}
		receipts, err := r.timers.ScheduleMany(ctx, timers)
		require.ErrorIs(t, err, errBoom)
		require.ErrorIs(t, err, ErrFull)
		require.ErrorContains(t, err, "2 of 5 timers: boom")
		require.ErrorContains(t, err, "1 of 5 timers: durable: no more timers can be held")
		var kinds []ReceiptKind
		for _, got := range receipts {
			kinds = append(kinds, got.Kind)
		}
		require.Equal(t, []ReceiptKind{Created, 0, Created, 0, Refused}, kinds)
		r.faults.fail(errBoom)
		_, err = r.timers.ScheduleMany(ctx, timers)
		require.EqualError(t, err, "5 of 5 timers: boom", "one error of both shards")
		r.faults.set(func(_ context.Context, _ string, shard int) error {
			if shard == 1 {
				return errBoom
			}
			return nil
		}, nil)
		got, err := r.timers.Schedule(ctx, Timer{Key: a[2]})
		require.Equal(t, ErrFull, err)
		require.Equal(t, Receipt{Kind: Refused}, got)
		_, err = r.timers.Schedule(ctx, Timer{Key: b[0]})
		require.Equal(t, errBoom, err)
	})
}

// List merges the shards in order, and reads no more than the loop needs.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16, store.Limits{}, 3*time.Hour)
		ctx := context.Background()
		var timers []Timer
		for i := range 6000 {
			timers = append(timers, Timer{Key: fmt.Sprintf("k%04d", i), Body: []byte("b"), At: r.now().Add(time.Duration(i/2) * time.Second)})
		}
		_, err := r.timers.ScheduleMany(ctx, timers)
		require.NoError(t, err)
		i := 0
		for info, err := range r.timers.List(ctx, Query{}) {
			require.NoError(t, err)
			require.Equal(t, timers[i].Key, info.Key)
			require.Equal(t, timers[i].At, info.Due)
			require.Nil(t, info.Body)
			i++
		}
		require.Equal(t, 6000, i)
		for info, err := range r.timers.List(ctx, Query{After: Cursor{At: store.MillisAt(timers[4998].At), Key: timers[4998].Key}}) {
			require.NoError(t, err)
			require.Equal(t, timers[4999].Key, info.Key, "the next one of the same time")
			break
		}
		r.faults.countAll()
		for range r.timers.List(ctx, Query{}) {
			break
		}
		require.Equal(t, map[string]int{"list": 16}, r.faults.countAll())

		calls := 0
		r.faults.set(func(context.Context, string, int) error {
			if calls++; calls > 40 {
				return errBoom
			}
			return nil
		}, nil)
		n, failed := 0, 0
		for info, err := range r.timers.List(ctx, Query{}) {
			if err != nil {
				require.Equal(t, errBoom, err)
				require.Zero(t, info)
				failed++
				continue
			}
			n++
		}
		require.Equal(t, 1, failed)
		require.Greater(t, n, 4*256)
		r.faults.fail(nil)
		for range r.timers.List(ctx, Query{State: Dead}) {
			t.Fatal("nothing is dead")
		}
	})
}

// List reports the position up to which it has scanned, from which another List can continue; and
// it scans a shard no further than needed to know the next timer.
func TestListTellsHowFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 0)
		ctx := context.Background()
		r.addMany("order", "orders", 16*store.MaxScan)
		want := []string{"early", "late"}
		r.add(Timer{Key: want[0], Topic: "rare", After: time.Hour})
		r.add(Timer{Key: want[1], Topic: "rare", After: 2 * time.Hour})
		r.faults.countAll()

		var found []string
		ends := 0
		q := Query{Filter: Filter{Topic: "rare"}}
		for last := q.After; ; ends++ {
			ctx, cancel := context.WithCancel(ctx)
			calls := 0
			q.Scanned = func(c Cursor) {
				require.GreaterOrEqual(t, cmp.Or(cmp.Compare(c.At, last.At), cmp.Compare(c.Key, last.Key)), 0)
				if last = c; len(found) > 0 {
					if calls++; calls == 5 {
						cancel()
					}
				}
			}
			var failed error
			for info, err := range r.timers.List(ctx, q) {
				if failed = err; err != nil {
					break
				}
				if len(found) == 0 {
					require.LessOrEqual(t, r.faults.count("list"), 8)
				}
				found = append(found, info.Key)
				last = info.Cursor()
			}
			q.After = last
			cancel()
			if failed == nil {
				break
			}
			require.ErrorIs(t, failed, context.Canceled)
		}
		require.Equal(t, want, found)
		require.Greater(t, ends, 1)
	})
}

// A List with a filter continues over pages without matches, in each shard.
func TestListOfFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		ctx := context.Background()
		var all []Timer
		for i := range 2*store.MaxScan + 2*store.MaxItems {
			all = append(all, Timer{Key: fmt.Sprintf("order-%05d", i), Topic: "orders", After: time.Hour + time.Duration(i)*time.Millisecond})
		}
		rare := []string{"mail-1", "mail-2", "order-x", "mail-3"}
		for i, key := range rare {
			all = append(all, Timer{Key: key, Topic: "rare", After: 24*time.Hour + time.Duration(i)*time.Second})
		}
		for batch := range slices.Chunk(all, store.MaxItems) {
			_, err := r.timers.ScheduleMany(ctx, batch)
			require.NoError(t, err)
		}
		keys := func(q Query) (keys []string) {
			for info, err := range r.timers.List(ctx, q) {
				require.NoError(t, err)
				keys = append(keys, info.Key)
				rest := q
				rest.After = info.Cursor()
				for next, err := range r.timers.List(ctx, rest) {
					require.NoError(t, err)
					require.True(t, next.Due.After(info.Due))
				}
			}
			return keys
		}
		require.Equal(t, rare, keys(Query{Filter: Filter{Topic: "rare"}}))
		require.Equal(t, []string{"mail-1", "mail-2", "mail-3"}, keys(Query{Filter: Filter{Prefix: "mail-"}}))
		require.Empty(t, keys(Query{Filter: Filter{Error: "timeout"}}))
		for _, err := range r.timers.List(ctx, Query{State: 7}) {
			require.EqualError(t, err, "durable: Query.State is State(7), must be waiting, leased or dead")
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ctx := context.Background()
		gate := make(chan struct{})
		r.faults.set(func(context.Context, string, int) error { <-gate; return nil }, nil)
		errs := map[string]chan error{"sent": make(chan error, 1), "waits": make(chan error, 1)}
		for _, key := range []string{"sent", "waits"} {
			go func() {
				_, err := r.timers.Schedule(ctx, Timer{Key: key, After: time.Hour})
				errs[key] <- err
			}()
			synctest.Wait()
		}
		closed := make(chan error)
		go func() { closed <- r.timers.Shutdown(context.Background()) }()
		synctest.Wait()
		_, err := r.timers.Schedule(ctx, Timer{Key: "late"})
		require.Equal(t, ErrClosed, err)
		_, err = r.timers.ScheduleMany(ctx, []Timer{{Key: "late"}})
		require.Equal(t, ErrClosed, err)
		_, err = r.timers.Get(ctx, "sent")
		require.Equal(t, ErrClosed, err)
		require.Equal(t, ErrClosed, r.timers.Ping(ctx))
		select {
		case <-closed:
			t.Fatal("Shutdown does not wait")
		default:
		}
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errBoom)
		require.Equal(t, errBoom, r.timers.Shutdown(ended))
		r.timers.Close() // does not wait
		close(gate)
		require.NoError(t, <-errs["sent"])
		require.ErrorIs(t, <-errs["waits"], ErrClosed)
		require.NoError(t, <-closed)
		require.NoError(t, r.timers.Shutdown(context.Background()))
		rec, err := r.engine.Get(ctx, 0, "sent") // New: the store is open
		require.NoError(t, err)
		require.Equal(t, Waiting, rec.State)
	})
}

// Cancel returns the engine's result together with ErrUnsure, and Schedule together with
// ErrUnconfirmed.
func TestResultsWithErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := memstore.New(memstore.Options{Shards: 1})
		require.NoError(t, err)
		timers, err := New(&partial{Store: s}, Options{})
		require.NoError(t, err)
		got, err := timers.Cancel(context.Background(), "k")
		require.ErrorIs(t, err, ErrUnsure)
		require.Equal(t, NotFound, got)
		receipt, err := timers.Schedule(context.Background(), Timer{Key: "k"})
		require.ErrorIs(t, err, ErrUnconfirmed)
		require.Equal(t, Created, receipt.Kind)
		receipts, err := timers.ScheduleMany(context.Background(), []Timer{{Key: "j"}})
		require.ErrorIs(t, err, ErrUnconfirmed)
		require.Equal(t, Created, receipts[0].Kind)
		require.NoError(t, timers.Shutdown(context.Background()))
	})
}

type partial struct{ store.Store }

func (p *partial) Cancel(ctx context.Context, shard int, keys []string) ([]store.CancelResult, error) {
	r, err := p.Store.Cancel(ctx, shard, keys)
	return r, errors.Join(store.ErrUnsure, err)
}

func (p *partial) Schedule(ctx context.Context, shard int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	r, h, err := p.Store.Schedule(ctx, shard, entries)
	return r, h, errors.Join(store.ErrUnconfirmed, err)
}
