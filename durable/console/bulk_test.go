package console

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
)

// finished waits, inside a synctest bubble, for the end of a bulk action.
func (r *rig) finished(id string) jobState {
	r.Helper()
	for range 1000 {
		if s := call[jobState](r, 200, "/api/bulk/"+id, nil); s.over() {
			synctest.Wait() // until the action has logged its end
			return s
		}
		time.Sleep(time.Second)
	}
	require.Fail(r, "the bulk action does not end")
	return jobState{}
}

func TestBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.many("order-", 1200)
		r.many("other-", 5)
		waiting := object{"state": "waiting", "prefix": "order-"}

		f := call[failure](r, 409, "/api/bulk", object{"action": "cancel", "filter": waiting})
		require.Equal(t, "1200 timers match now: confirm that number", f.Message)
		require.Equal(t, 1200, *f.Count)
		call[failure](r, 409, "/api/bulk", object{"action": "cancel", "filter": waiting, "confirm": 1090})
		require.Equal(t, 1205, r.stats().Waiting)

		moved := call[jobState](r, 200, "/api/bulk", object{"action": "reset", "filter": object{"state": "waiting", "prefix": "other-"}})
		moved = r.finished(moved.ID)
		require.Equal(t, []any{"done", 5, 0, 4, 4}, []any{moved.Status, moved.Changed, moved.Missed, moved.ShardsDone, moved.Shards})
		require.Equal(t, 5, r.stats().Overdue)

		s := call[jobState](r, 200, "/api/bulk", object{"action": "cancel", "filter": waiting, "confirm": 1100})
		s = r.finished(s.ID)
		require.Equal(t, []any{"done", 1200, 1200}, []any{s.Status, s.Changed, s.Count})
		require.Equal(t, 5, r.stats().Waiting)
		require.Contains(t, r.log.String(), `action="bulk cancel" id=`+s.ID+` timers=1200`)
		require.Contains(t, r.log.String(), "status=done changed=1200")

		list := call[jobList](r, 200, "/api/bulk", nil)
		require.Equal(t, []string{s.ID, moved.ID}, []string{list.Bulk[0].ID, list.Bulk[1].ID})
	})
}

func TestBulkOfDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.dead("connection refused", "a", "b")
		r.dead("no such host", "c", "d", "e")
		time.Sleep(time.Second) // Bulk skips timers that die after its start
		s := call[jobState](r, 200, "/api/bulk", object{"action": "requeue", "filter": object{"state": "dead", "error": "refused"}})
		require.Equal(t, 2, r.finished(s.ID).Changed)
		s = call[jobState](r, 200, "/api/bulk", object{"action": "purge", "filter": object{"state": "dead"}})
		require.Equal(t, 3, r.finished(s.ID).Changed)
		st := r.stats()
		require.Equal(t, []int{2, 0}, []int{st.Waiting, st.Dead})
	})
}

// A bulk action retries after errors of the engine, and shows since when it fails.
func TestBulkRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.many("order-", 50)
		begun := time.Now()
		r.engine.set(func(call string) error {
			if call == "cancel" && time.Since(begun) < time.Minute {
				return errors.New("connection refused")
			}
			return nil
		})
		s := call[jobState](r, 200, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting"}})
		time.Sleep(30 * time.Second)
		now := call[jobState](r, 200, "/api/bulk/"+s.ID, nil)
		require.Equal(t, "retrying", now.Status)
		require.Contains(t, now.Error, "connection refused")
		require.WithinDuration(t, begun, now.Retrying, time.Second)
		require.Equal(t, 5, now.Failures, "after 0, 1, 3, 7 and 15 s")
		s = r.finished(s.ID)
		require.Equal(t, []any{"done", 50, "", 0}, []any{s.Status, s.Changed, s.Error, s.Failures})
		require.Zero(t, r.stats().Waiting)
	})
}

func TestBulkStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.many("order-", 50)
		r.engine.set(func(call string) error {
			if call == "cancel" {
				return errors.New("connection refused")
			}
			return nil
		})
		start := func() string {
			return call[jobState](r, 200, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting"}}).ID
		}
		var ids []string
		for range 4 {
			ids = append(ids, start())
		}
		r.refused(429, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting"}}, "4 bulk actions run, must be at most 4 at once")
		synctest.Wait()
		for range 2 {
			call[jobState](r, 200, "/api/bulk/"+ids[0]+"/stop", object{})
		}
		synctest.Wait()
		require.Equal(t, "stopped", call[jobState](r, 200, "/api/bulk/"+ids[0], nil).Status)
		for range 30 { // ended actions are dropped, running ones are kept
			id := start()
			call[jobState](r, 200, "/api/bulk/"+id+"/stop", object{})
			synctest.Wait()
		}
		list := call[jobList](r, 200, "/api/bulk", nil).Bulk
		require.Len(t, list, maxJobs)
		require.Equal(t, ids[1], list[maxJobs-1].ID)
		r.console.Close()
		require.Equal(t, "stopped", call[jobState](r, 200, "/api/bulk/"+ids[1], nil).Status)
		r.refused(503, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting"}}, "the console is closed")
	})
}

// Lists and actions name their process. Another process tells that the action may run elsewhere, and
// closes the connection.
func TestBulkOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, err := os.Hostname()
		require.NoError(t, err)
		a, b := newRig(t, Options{}), newRig(t, Options{Process: "b"})
		a.many("order-", 5)
		s := call[jobState](a, 200, "/api/bulk", object{"action": "cancel", "filter": object{"state": "waiting"}})
		require.Equal(t, fmt.Sprintf("%.64s-%d", host, os.Getpid()), s.Process)
		a.finished(s.ID)
		require.Equal(t, s.Process, call[jobList](a, 200, "/api/bulk", nil).Process)
		require.Equal(t, jobList{Process: "b", Bulk: []jobState{}}, call[jobList](b, 200, "/api/bulk", nil))
		for path, body := range map[string]any{"": nil, "/stop": object{}} {
			w := b.do(b.request("/api/bulk/"+s.ID+path, body))
			require.Equal(t, 404, w.Code)
			require.Equal(t, "close", w.Header().Get("Connection"))
			require.JSONEq(t, `{"error":"no bulk action of the last 20 of b has the id \"`+s.ID+`\"","elsewhere":true}`, w.Body.String())
		}
	})
}

func TestBadBulk(t *testing.T) {
	r := newRig(t, Options{})
	for _, c := range []struct {
		body object
		why  string
	}{
		{object{"action": "explode"}, `action is "explode", must be cancel, reset, requeue or purge`},
		{object{"action": "cancel"}, `state is "", must be waiting, running or dead`},
		{object{"action": "cancel", "filter": object{"state": "dead"}}, "filter.state is dead, must be waiting for cancel"},
		{object{"action": "purge", "filter": object{"state": "waiting"}}, "filter.state is waiting, must be dead for purge"},
		{object{"action": "purge", "filter": object{"state": "dead"}, "after_ms": 5}, "must not be set for purge"},
		{object{"action": "reset", "filter": object{"state": "waiting", "error": repeat("x", 2000)}}, "Query.Error is 2000 bytes long, must be at most 1024"},
	} {
		r.refused(400, "/api/bulk", c.body, c.why)
	}
}

func TestConfirmed(t *testing.T) {
	for _, c := range []struct {
		now, shown total
		want       bool
	}{
		{total{Count: 100}, total{}, true},
		{total{Count: 101}, total{}, false},
		{total{Count: 101}, total{Count: 101}, true},
		{total{Count: 1100}, total{Count: 1000}, true},
		{total{Count: 1101}, total{Count: 1000}, false},
		{total{Count: 900}, total{Count: 1000}, true},
		{total{Count: 899}, total{Count: 1000}, false},
		{total{Count: 50}, total{Count: 1000}, false},
		{total{Count: 1000, AtLeast: true}, total{Count: 1000}, false},
		{total{Count: 5000, AtLeast: true}, total{Count: 1000, AtLeast: true}, true},
		{total{Count: 5000}, total{Count: 1000, AtLeast: true}, false},
	} {
		require.Equal(t, c.want, confirmed(c.now, c.shown), c)
	}
}

func TestBulkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		j := &job{stop: make(chan struct{})}
		r.timers.Close()
		r.console.run(background, j, durable.Bulk{Action: durable.BulkCancel})
		s := j.snapshot()
		require.Equal(t, "failed", s.Status)
		require.Contains(t, s.Error, "closed")
	})
}

// At most 100 missed keys are kept.
func TestMissedKeys(t *testing.T) {
	j := &job{stop: make(chan struct{})}
	keys := make([]string, 70)
	for i := range keys {
		keys[i] = "\xff"
	}
	for range 3 {
		j.add(durable.BulkProgress{Shards: 1, Missed: 5, MissedKeys: keys, Resume: "x"}, nil, false)
	}
	require.Len(t, j.snapshot().MissedKeys, maxMissedKeys)
	require.Equal(t, `\xff`, j.snapshot().MissedKeys[0])
	require.Empty(t, (&bulk{jobs: []*job{j}}).jobStates()[0].MissedKeys, "events stay small")
}
