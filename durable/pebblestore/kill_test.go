package pebblestore

import (
	"bufio"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// The test binary runs itself as a child: with childDir set, it opens that folder and works on it
// until it is killed.
const childDir = "LIMBO_PEBBLESTORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

func childOptions() Options {
	return Options{Shards: testShards, Logger: quiet, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, misuse: misuse}
}

// child writes a line for each note, before and after each call.
func child(dir string) {
	s, err := Open(dir, childOptions())
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(3)
	}
	var mu sync.Mutex
	lines := json.NewEncoder(os.Stdout)
	for n := range testShards {
		go func() {
			w := newWorkload(s, n, rand.Uint64(), func(e note) {
				mu.Lock()
				defer mu.Unlock()
				if err := lines.Encode(e); err != nil {
					os.Exit(4)
				}
			})
			for {
				if err := w.next(context.Background()); err != nil {
					_, _ = os.Stderr.WriteString(err.Error())
					os.Exit(5)
				}
			}
		}()
	}
	select {}
}

// D1, D3: SIGKILL ends the process at random moments, round after round on the same folder. No
// acknowledged change is lost, each call has happened as a whole or not at all, and no timer is in
// two states.
func TestKilled(t *testing.T) {
	t.Parallel()
	rounds := 6
	if long() {
		rounds = 200
	}
	dir := t.TempDir()
	total := 0
	for range rounds {
		var l ledger
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		moment := 1 + rand.IntN(2000)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e note
			if json.Unmarshal(lines.Bytes(), &e) == nil { // the last may be cut
				l.note(e)
			}
			if len(l) == moment {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.ErrorContains(t, cmd.Wait(), "killed", stderr.String())
		require.GreaterOrEqual(t, len(l), moment)
		total += len(l)

		s, err := Open(dir, childOptions())
		require.NoError(t, err)
		verify(t, s)
		l.check(t, s)
		empty(t, s)
		require.NoError(t, s.Close())
	}
	t.Logf("%d notes", total)
}

// empty removes all timers, so that the next round starts from a known state.
func empty(t *testing.T, s *Store) {
	for n := range s.Shards() {
		plans, err := s.Plans(t.Context(), n, "", 10)
		require.NoError(t, err)
		for _, r := range plans {
			results, _, _, err := s.SwapPlans(t.Context(), n, []store.PlanSwap{{Key: r.Key, Expected: r.ID}}, store.SwapClaim{})
			require.NoError(t, err)
			require.Equal(t, []store.SwapResult{store.Swapped}, results)
		}
		keys, _ := workloadKeys(n, s.Shards())
		_, err = s.Cancel(t.Context(), n, keys)
		require.NoError(t, err)
		_, err = s.Purge(t.Context(), n, keys)
		require.NoError(t, err)
		claimed, _, err := s.Claim(t.Context(), n, newClaim(500))
		require.NoError(t, err)
		require.Empty(t, claimed.Leases, "D4: cancelled, and claimed")
		st, err := s.Stats(t.Context(), n)
		require.NoError(t, err)
		require.Zero(t, st.Waiting+st.Leased+st.Dead+st.Plans)
	}
	verify(t, s)
}

func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, childOptions())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.CombinedOutput()
	require.ErrorContains(t, err, "exit status 3")
	require.Contains(t, string(out), ErrInUse.Error())
	require.NoError(t, s.Close())
}
