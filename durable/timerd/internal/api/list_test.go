package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

func (f *fixture) page(path string) (p wire.Page) {
	f.t.Helper()
	status, reply := f.do("GET", path, "")
	require.Equal(f.t, 200, status, reply)
	require.NoError(f.t, json.Unmarshal([]byte(reply), &p))
	return p
}

// A list is in order of due times and then keys, over all shards, and has each timer once, for any
// page size.
func TestListByDueTime(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 203
	for i := range n {
		f.do("PUT", fmt.Sprintf("/timers/k%03d", i), fmt.Sprintf(`{"after":"%ds",%s}`, rng.IntN(20), callback))
	}
	for _, limit := range []int{1, 7, 100, 203, 204, 500} {
		var all []wire.Info
		pages := 0
		for after := ""; ; pages++ {
			p := f.page(fmt.Sprintf("/timers?limit=%d&after=%s", limit, after))
			require.LessOrEqual(t, len(p.Timers), limit)
			all = append(all, p.Timers...)
			if after = p.Next; after == "" {
				break
			}
			require.Len(t, p.Timers, limit)
		}
		require.Len(t, all, n)
		for i := 1; i < n; i++ {
			a, b := all[i-1], all[i]
			require.Less(t, a.Due+a.Key, b.Due+b.Key)
			require.Empty(t, a.Body)
		}
		require.Equal(t, (n-1)/limit, pages)
	}
	require.Len(t, f.page("/timers").Timers, defaultPage)
}

// A page is full even if one shard has all timers.
func TestListOfOneShard(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for i, n := 0, 0; n < 120; i++ {
		key := fmt.Sprintf("k%04d", i)
		if store.ShardOf(key, shards) != 2 {
			continue
		}
		f.do("PUT", "/timers/"+key, `{"after":"1h",`+callback+`}`)
		n++
	}
	p := f.page("/timers?limit=100")
	require.Len(t, p.Timers, 100)
	require.Len(t, f.page("/timers?limit=100&after="+p.Next).Timers, 20)
}

func TestEmptyList(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.expect(200, `{"timers":[]}`, "GET", "/timers", "")
	f.expect(200, `{"timers":[]}`, "GET", "/dead", "")
}

// D9: dead letters are listed, requeued and purged.
func TestDeadLetters(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for i, key := range []string{"c", "b/b", "a"} {
		f.do("PUT", pathOf(key), `{"after":"0s",`+callback+`}`)
		f.now = noon.Add(time.Duration(i) * time.Second)
		f.end(f.claim(key), store.DeadLetter, "gone wrong")
	}
	p := f.page("/dead")
	require.Len(t, p.Timers, 3)
	for i, key := range []string{"c", "b/b", "a"} {
		require.Equal(t, key, p.Timers[i].Key)
		require.Equal(t, "dead", p.Timers[i].State)
		require.Equal(t, "gone wrong", p.Timers[i].LastError)
		require.Equal(t, fmt.Sprintf("2030-01-02T12:00:0%d.000Z", i), p.Timers[i].Died)
	}
	p = f.page("/dead?limit=2")
	require.Equal(t, "a", f.page("/dead?limit=2&after=" + p.Next).Timers[0].Key)

	f.expect(404, `{"key":"b/b","result":"not found"}`, "DELETE", "/timers/b%2Fb", "") // D4: a dead letter too
	f.expect(200, `{"key":"b/b","result":"requeued"}`, "POST", "/dead/b%2Fb", "")
	f.expect(409, `{"key":"b/b","result":"exists"}`, "POST", "/dead/b%2Fb", "")
	f.expect(404, `{"key":"x","result":"absent"}`, "POST", "/dead/x", "")
	require.Equal(t, 1, f.claim("b/b").Attempt)
	f.expect(200, `{"key":"a","result":"purged"}`, "DELETE", "/dead/a", "")
	f.expect(404, `{"key":"a","result":"absent"}`, "DELETE", "/dead/a", "")
	f.expect(404, `{"key":"b/b","result":"absent"}`, "DELETE", "/dead/b%2Fb", "") // the key has a timer again
	require.Len(t, f.page("/dead").Timers, 1)
}

// If the store fails during a page, the page fails.
func TestListFails(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for key := ""; len(key) < 250; key += "a" {
		if store.ShardOf("k"+key, shards) == 2 {
			f.do("PUT", "/timers/k"+key, `{"after":"1h",`+callback+`}`)
		}
	}
	f.server.o.Timers = timersOn(t, &failing{Store: f.store, after: shards})
	status, _ := f.do("GET", "/timers?limit=40", "") // the first read of that shard has fewer
	require.Equal(t, 502, status)
}

// failing is a store whose List fails after some calls.
type failing struct {
	store.Store
	after int
}

func (s *failing) List(ctx context.Context, shard int, q store.Query) (store.Page, error) {
	if s.after--; s.after < 0 {
		return store.Page{}, io.ErrUnexpectedEOF
	}
	return s.Store.List(ctx, shard, q)
}

// A list has the timers of one state that match a filter, page by page.
func TestListFilters(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for i := range 6 {
		key, topic := fmt.Sprintf("mail/%d", i), []string{"out", "in"}[i%2]
		status, reply := f.do("PUT", "/timers/"+key, `{"after":"1s","topic":"`+topic+`",`+callback+`}`)
		require.Equal(t, 201, status, reply)
	}
	f.do("PUT", "/timers/sms", `{"after":"1s","topic":"out",`+callback+`}`)
	f.now = f.now.Add(2 * time.Second)
	keys := func(path string) (keys []string) {
		for next := "&"; next != ""; {
			page := f.page(path + next)
			for _, timer := range page.Timers {
				keys = append(keys, timer.Key)
			}
			if next = page.Next; next != "" {
				next = "&after=" + next
			}
		}
		slices.Sort(keys)
		return keys
	}
	require.Len(t, keys("/timers?limit=2"), 7)
	require.Equal(t, []string{"mail/0", "mail/2", "mail/4"}, keys("/timers?state=waiting&prefix=mail%2F&topic=out&limit=1"))
	require.Empty(t, keys("/timers?state=leased"))
	lease := f.claim("mail/0")
	require.Equal(t, []string{lease.Key}, keys("/timers?state=leased&topic="+lease.Topic))
	f.end(lease, store.DeadLetter, "502 Bad Gateway")
	require.Equal(t, []string{lease.Key}, keys("/timers?state=dead&error=bad+gateway"))
	require.Equal(t, []string{lease.Key}, keys("/dead?error=BAD"))
	require.Empty(t, keys("/dead?error=timeout"))
	for query, message := range map[string]string{
		"/timers?state=running":                      `state is "running", must be waiting, leased or dead`,
		"/timers?prefix=" + strings.Repeat("x", 513): "must be at most 512 bytes",
		"/timers?topic=" + strings.Repeat("x", 129):  "must be at most 128 bytes",
		"/dead?error=" + strings.Repeat("x", 1025):   "must be at most 1024 bytes",
		"/dead?state=waiting":                        "state is a parameter, must be absent: there are error, prefix, topic, limit and after",
	} {
		status, reply := f.do("GET", query, "")
		require.Equal(t, 400, status, query)
		var answer struct{ Error struct{ Message string } }
		require.NoError(t, json.Unmarshal([]byte(reply), &answer))
		require.Contains(t, answer.Error.Message, message)
	}
}

func TestEmptyParameters(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for _, query := range []string{"?limit=", "?after=", "?limit=&after=", "?", "?&", "?limit=%31"} {
		f.expect(200, `{"timers":[]}`, "GET", "/timers"+query, "")
	}
}

func TestCursors(t *testing.T) {
	for _, c := range []store.Cursor{
		{At: 1 << 40, Key: "\x00\xffkey"}, {At: 0, Key: "a"}, {At: store.MaxMillis, Key: strings.Repeat("a", store.MaxKey)},
	} {
		got, err := parseCursor(formatCursor(c))
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	_, err := parseCursor(formatCursor(store.Cursor{At: 1, Key: strings.Repeat("a", store.MaxKey+1)}))
	require.Error(t, err)
	for _, bad := range []string{"a", "AAAAAAAAAAA", formatCursor(store.Cursor{At: -1, Key: "a"}), formatCursor(store.Cursor{At: store.MaxMillis + 1, Key: "a"})} {
		_, err := parseCursor(bad)
		require.Error(t, err, bad)
	}
}
