package readme

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/stretchr/testify/require"
)

// feeds is the data of the service in the README: lists of entries, by name.
type feeds struct {
	mu      sync.Mutex
	entries map[string][]string // guarded by mu
}

func (f *feeds) count(name string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.entries[name]))
}

func (f *feeds) add(name, entry string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries[name] = append(f.entries[name], entry)
}

func (f *feeds) after(name string, seen int64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.entries[name][seen:], "\n")
}

func entriesSeen(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.FormValue("seen"), 10, 64)
	return max(n, 0)
}

type service struct {
	feeds *feeds
	polls *purgatory.Threshold[string, int64]
}

// README
func newServer(feeds *feeds) (*http.Server, error) {
	polls, err := purgatory.NewThreshold(feeds.count, purgatory.Options{MaxPending: 100_000})
	if err != nil {
		return nil, err
	}
	s := &service{feeds, polls}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /feeds/{feed}", s.poll)
	mux.HandleFunc("POST /feeds/{feed}", s.post)
	server := &http.Server{Addr: ":8080", Handler: mux}
	server.RegisterOnShutdown(polls.Close) // or Shutdown would wait for the polls
	return server, nil
}

// poll answers as soon as the feed has more entries than the client has seen; with 204
// when the client's time is up, and with 503 when too many are waiting.
func (s *service) poll(w http.ResponseWriter, r *http.Request) {
	feed, seen := r.PathValue("feed"), entriesSeen(r)
	grown := purgatory.Goal[string, int64]{Key: feed, Number: seen + 1}
	if longpoll.WaitGoals(w, r, s.polls, purgatory.All, grown) {
		fmt.Fprintln(w, s.feeds.after(feed, seen))
	}
}

func (s *service) post(w http.ResponseWriter, r *http.Request) {
	feed := r.PathValue("feed")
	s.feeds.add(feed, r.FormValue("entry")) // first the change, then the call
	if err := s.polls.AdvanceLater(feed); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// end

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feeds{entries: map[string][]string{}}
		server, err := newServer(f)
		require.NoError(t, err)
		call := func(ctx context.Context, method, target string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, target, nil))
			return w
		}
		poll := func(ctx context.Context, target string) <-chan *httptest.ResponseRecorder {
			answer := make(chan *httptest.ResponseRecorder, 1)
			go func() { answer <- call(ctx, "GET", target) }()
			synctest.Wait()
			return answer
		}
		always := t.Context()

		waiting := poll(always, "/feeds/news")
		require.Equal(t, 200, call(always, "POST", "/feeds/news?entry=one").Code)
		w := <-waiting
		require.Equal(t, 200, w.Code)
		require.Equal(t, "one\n", w.Body.String())

		start := time.Now()
		require.Equal(t, 204, (<-poll(always, "/feeds/news?seen=1")).Code)
		require.Equal(t, 30*time.Second, time.Since(start))

		client, hangUp := context.WithCancel(always)
		waiting = poll(client, "/feeds/news?seen=1")
		hangUp()
		require.Equal(t, 503, (<-waiting).Code, "for a client that has not gone, after all")

		waiting = poll(always, "/feeds/news?seen=1")
		require.NoError(t, server.Shutdown(always))
		w = <-waiting
		require.Equal(t, 503, w.Code)
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		require.Equal(t, 503, call(always, "GET", "/feeds/news?seen=1").Code)
	})
}
