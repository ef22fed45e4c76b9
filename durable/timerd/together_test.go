package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/seed-782fa212/limbo/internal/programs"
)

// launch starts a program, waits until it is ready, and ends it with the test.
func launch(t *testing.T, cmd *exec.Cmd, ready func() error) {
	t.Helper()
	p, err := programs.StartReady(cmd, ready)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
}

// freeAddress returns an address for a server.
func freeAddress(t *testing.T) string {
	t.Helper()
	a, err := programs.Addr()
	require.NoError(t, err)
	return a
}

// startRedis starts a Redis, which ends with the test, and returns its URL.
func startRedis(t *testing.T) string {
	t.Helper()
	path, address := need.Program(t, "redis-server", "redis-server", "valkey-server"), freeAddress(t)
	p, err := programs.StartRedis(path, address, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return "redis://" + address
}

// Two processes share a Redis, and put and update the same schedules at the same time. They create
// one set of occurrences.
func TestTwoProcessesWithTheSameSchedules(t *testing.T) {
	t.Parallel()
	const schedules, limit = 20, 6 // a process puts a schedule again after each occurrence but the last

	var mu sync.Mutex
	ids := map[string]map[string]string{} // IDs by schedule and planned time
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		schedule, planned, id := r.Header.Get("Limbo-Schedule"), r.Header.Get("Limbo-Planned"), r.Header.Get("Idempotency-Key")
		if ids[schedule] == nil {
			ids[schedule] = map[string]string{}
		}
		if other := ids[schedule][planned]; other != "" && other != id {
			t.Errorf("%s of %s: %s and %s", planned, schedule, other, id)
		}
		ids[schedule][planned] = id
	}))
	t.Cleanup(receiver.Close)

	redis := startRedis(t)
	var bases []string
	for range 2 {
		listen := freeAddress(t)
		cmd := exec.Command(os.Args[0], "-listen", listen, "-store", redis, "-allow", "127.0.0.0/8", "-per-host", "64", "-lease", "1s")
		cmd.Env = append(os.Environ(), "LIMBO_TIMERD_TEST=1")
		bases = append(bases, "http://"+listen)
		launch(t, cmd, func() error {
			res, err := http.Get("http://" + listen + "/healthz")
			if err == nil {
				_ = res.Body.Close()
			}
			return err
		})
	}
	ask := func(method, url, body string, reply any) error {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode > 201 {
			err = fmt.Errorf("%s: %s", res.Status, b)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(b, reply)
	}

	// came waits until n occurrences of a schedule have run.
	came := func(schedule string, n int) bool {
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
			mu.Lock()
			got := len(ids[schedule])
			mu.Unlock()
			if got >= n {
				return true
			}
		}
		t.Errorf("%s has not run %d times within a minute", schedule, n)
		return false
	}
	created := make([]int, schedules)
	begun := time.Now().UnixMilli()
	var putting sync.WaitGroup
	for i := range schedules {
		name := fmt.Sprintf("s-%d", i)
		for n, base := range bases {
			putting.Go(func() {
				for round := 0; round < limit && came(name, round); round++ {
					var r wire.ScheduleResult
					body := fmt.Sprintf(`{"every":"1s","offset":"%dms","limit":%d,"overlap":"allow","missed":"all","topic":"%d","callback":{"url":%q}}`,
						50*i, limit, (n+round)%2, receiver.URL)
					if err := ask(http.MethodPut, base+"/schedules/"+name, body, &r); err != nil {
						t.Error(err)
					}
					if r.Result == "created" {
						mu.Lock()
						created[i]++
						mu.Unlock()
					}
				}
			})
		}
	}
	putting.Wait()
	for i := range schedules {
		came(fmt.Sprintf("s-%d", i), limit)
	}
	time.Sleep(1100 * time.Millisecond) // an occurrence too many would run by then

	for i := range schedules {
		require.Equal(t, 1, created[i])
		name := fmt.Sprintf("s-%d", i)
		var infos [2]wire.ScheduleInfo
		require.Eventually(t, func() bool {
			for n, base := range bases {
				require.NoError(t, ask(http.MethodGet, base+"/schedules/"+name, "", &infos[n]))
			}
			return infos[0].State == "ended" && infos[0].Counts.Done >= infos[0].Counts.Created
		}, time.Minute, 50*time.Millisecond)
		require.Equal(t, infos[0], infos[1])
		since, err := time.Parse(time.RFC3339Nano, infos[0].Created)
		require.NoError(t, err)
		require.GreaterOrEqual(t, since.UnixMilli(), begun)
		planned := map[string]bool{}
		first := int64(50 * i)
		first += ((since.UnixMilli()-first)/1000 + 1) * 1000
		for k := range int64(limit) {
			planned[time.UnixMilli(first+1000*k).UTC().Format("2006-01-02T15:04:05.000Z")] = true
		}
		require.Equal(t, wire.Counts{Created: limit, Done: limit}, infos[0].Counts)
		mu.Lock()
		for at := range planned {
			require.NotEmpty(t, ids[name][at], "%s at %s", name, at)
		}
		require.Len(t, ids[name], limit)
		mu.Unlock()
	}
}
