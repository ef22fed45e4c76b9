package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

// newPurgatory makes a purgatory that is shut down when the test ends.
func newPurgatory(t *testing.T) *purgatory.Purgatory[string] {
	t.Helper()
	p, err := purgatory.New[string](purgatory.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(background)) })
	return p
}

func newWheel(t *testing.T, o timingwheel.Options) *timingwheel.Wheel[int] {
	t.Helper()
	w, err := timingwheel.New(func(int) {}, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := w.Shutdown(background, timingwheel.Discard)
		require.NoError(t, err)
	})
	return w
}

func watch(t *testing.T, p *purgatory.Purgatory[string], timeout time.Duration, keys ...string) purgatory.Pending {
	t.Helper()
	h, err := p.TryCompleteElseWatch(background, never{}, timeout, keys...)
	require.NoError(t, err)
	return h
}

func add(t *testing.T, r *Registry, name string, s Source) (remove func()) {
	t.Helper()
	remove, err := r.Add(name, s)
	require.NoError(t, err)
	return remove
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// reader is the client of a stream, in the bubble of a test. It reads the handler's output from
// a pipe.
type reader struct {
	cancel context.CancelFunc
	code   chan int // receives the status when the stream has ended
	lines  *bufio.Scanner
}

type pipeWriter struct {
	head http.Header
	code int
	to   *io.PipeWriter
}

func (w *pipeWriter) Header() http.Header              { return w.head }
func (w *pipeWriter) WriteHeader(code int)             { w.code = code }
func (w *pipeWriter) Write(p []byte) (int, error)      { return w.to.Write(p) }
func (w *pipeWriter) Flush()                           {}
func (w *pipeWriter) SetWriteDeadline(time.Time) error { return nil }

func openStream(h *Handler, query string) *reader {
	ctx, cancel := context.WithCancel(background)
	out, in := io.Pipe()
	r := &reader{cancel: func() { cancel(); _ = out.Close() }, code: make(chan int, 1), lines: bufio.NewScanner(out)}
	r.lines.Buffer(nil, 1<<20)
	go func() {
		w := &pipeWriter{http.Header{}, http.StatusOK, in}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/events"+query, nil).WithContext(ctx))
		_ = in.Close()
		r.code <- w.code
	}()
	return r
}

// event returns the next event; its name is empty if the stream has ended.
func (r *reader) event() (name, data string) {
	for r.lines.Scan() {
		if key, value, _ := strings.Cut(r.lines.Text(), ": "); key == "event" {
			name = value
		} else if key == "data" {
			return name, value
		}
	}
	return "", ""
}

func (r *reader) snapshot(t *testing.T) Snapshot {
	t.Helper()
	name, data := r.event()
	require.Equal(t, "snapshot", name)
	var s Snapshot
	require.NoError(t, json.Unmarshal([]byte(data), &s))
	return s
}

func TestStreamSendsASnapshotEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		n := 0.0
		add(t, r, "x", Custom("counter", func() []Metric { n++; return []Metric{{Name: "n", Value: n}} }))
		h := NewHandler(r)
		begun := time.Now()
		s := openStream(h, "")
		for i := range 5 {
			require.Equal(t, float64(i+1), s.snapshot(t).Sources[0].Metrics["n"])
			require.Equal(t, time.Duration(i)*time.Second, time.Since(begun))
		}
		s.cancel()
		require.Equal(t, http.StatusOK, <-s.code)
		h.Close()
	})
}

// A bubble ends only when all its goroutines have, so these tests also check that the goroutine
// that makes snapshots ends.
func TestNoGoroutineWithoutAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		r := New()
		add(t, r, "x", Custom("counter", func() []Metric { reads.Add(1); return nil }))
		h := NewHandler(r)
		time.Sleep(time.Minute)
		require.Zero(t, reads.Load(), "no page is open")
		a, b := openStream(h, ""), openStream(h, "")
		a.snapshot(t)
		b.snapshot(t)
		a.cancel()
		b.snapshot(t)
		b.cancel()
		<-a.code
		<-b.code
		time.Sleep(time.Minute)
		was := reads.Load()
		time.Sleep(time.Minute)
		require.Equal(t, was, reads.Load())
		c := openStream(h, "") // reading resumes
		c.snapshot(t)
		c.snapshot(t)
		c.cancel()
		time.Sleep(time.Second) // until it would read again
	})
}

func TestCloseEndsTheStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(New())
		a, b := openStream(h, ""), openStream(h, "")
		a.snapshot(t)
		b.snapshot(t)
		closed := time.Now()
		h.Close()
		h.Close()
		for _, s := range []*reader{a, b} {
			name, _ := s.event()
			require.Empty(t, name)
			require.Equal(t, http.StatusOK, <-s.code)
		}
		require.Zero(t, time.Since(closed), "at once")
		refused := get(h, "/events")
		require.Equal(t, http.StatusServiceUnavailable, refused.Code)
		require.Contains(t, refused.Body.String(), "shutting down")
		require.Equal(t, http.StatusOK, get(h, "/snapshot.json").Code, "what is no stream is served yet")
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(New())
		var open []*reader
		for range maxStreams {
			s := openStream(h, "")
			s.snapshot(t)
			open = append(open, s)
		}
		refused := get(h, "/events")
		require.Equal(t, http.StatusServiceUnavailable, refused.Code)
		require.Equal(t, "10", refused.Header().Get("Retry-After"))
		require.Contains(t, refused.Body.String(), "too many pages")
		open[0].cancel()
		<-open[0].code
		open[0] = openStream(h, "")
		open[0].snapshot(t)
		h.Close()
		for _, s := range open {
			s.cancel()
		}
	})
}

// A slow client misses snapshots, and then gets the newest.
func TestSlowReaderDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		n := 0.0
		add(t, r, "x", Custom("counter", func() []Metric { n++; return []Metric{{Name: "n", Value: n}} }))
		h := NewHandler(r)
		slow, quick := openStream(h, ""), openStream(h, "")
		slow.snapshot(t)
		for i := range 30 {
			require.Equal(t, float64(i+1), quick.snapshot(t).Sources[0].Metrics["n"])
		}
		missed := slow.snapshot(t).Sources[0].Metrics["n"].(float64) // was being written
		require.LessOrEqual(t, missed, 2.0)
		require.GreaterOrEqual(t, slow.snapshot(t).Sources[0].Metrics["n"], 30.0)
		h.Close()
		slow.cancel()
		quick.cancel()
	})
}

func TestStreamHasTheListsOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		p := newPurgatory(t)
		remove := add(t, r, "p", Purgatory(p, nil))
		h := NewHandler(r)
		watch(t, p, time.Hour, "a", "b")
		time.Sleep(time.Second)
		watch(t, p, time.Minute, "a")
		s := openStream(h, "?kind=purgatory&name=p")
		s.snapshot(t)
		name, data := s.event()
		require.Equal(t, "lists", name)
		var l Lists
		require.NoError(t, json.Unmarshal([]byte(data), &l))
		require.Equal(t, Lists{Kind: "purgatory", Name: "p",
			Keys:   []HotKey{{Key: "a", Watching: 2, Oldest: 1}, {Key: "b", Watching: 1, Oldest: 1}},
			Oldest: []Group{{Waiting{Keys: []string{"a", "b"}, Age: 1, Left: new(3599.0)}, 1}, {Waiting{Keys: []string{"a"}, Left: new(60.0)}, 1}}}, l)
		remove()
		s.snapshot(t) // may be from before the removal
		for len(s.snapshot(t).Sources) > 0 {
			name, _ := s.event()
			require.Equal(t, "lists", name)
		}
		s.snapshot(t)
		h.Close()
		s.cancel()
	})
}

// Operations with the same keys form one row, with their number. Operations that have just ended
// have no keys, and form a row each.
func TestOldestAreGrouped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		p := newPurgatory(t)
		add(t, r, "p", Purgatory(p, nil))
		for i := range 250 {
			watch(t, p, time.Hour+time.Duration(i)*time.Second, "hot")
			if i%50 == 10 {
				watch(t, p, time.Hour, "hot", fmt.Sprint("cold", i))
			}
			time.Sleep(time.Second)
		}
		groups := r.find("purgatory", "p").lists().Oldest
		require.Len(t, groups, 5)
		require.Equal(t, Group{Waiting{Keys: []string{"hot"}, Age: 250, Left: new(3350.0)}, 196}, groups[0])
		for i, g := range groups[1:] {
			require.Equal(t, []any{1, []string{"hot", fmt.Sprint("cold", 10+50*i)}}, []any{g.Count, g.Keys})
		}
	})
}

func TestGroups(t *testing.T) {
	show := func(k string) Waiting {
		if k == "" {
			return Waiting{}
		}
		return Waiting{Keys: strings.Split(k, " ")}
	}
	count := func(list ...string) (text string) {
		for _, g := range groupsOf(list, show) {
			text += fmt.Sprint(g.Keys, g.Count, " ")
		}
		return text
	}
	require.Equal(t, "[a] 2 [b] 1 ", count("a", "b", "a"))
	require.Equal(t, "[a b] 1 [b a] 1 ", count("a b", "b a"))
	require.Equal(t, "[] 1 [] 1 [a] 1 ", count("", "", "a"))
	require.NotNil(t, groupsOf(nil, show))
	var many []string
	for i := range 2 * listed {
		many = append(many, fmt.Sprint(i))
	}
	require.Len(t, groupsOf(many, show), listed)
}

// A custom source's number that JSON cannot represent, or its panic, is reported as text, and
// the other metrics are shown.
func TestAProblemOfACustomSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		add(t, r, "nan", Custom("sick", func() []Metric { return []Metric{{Name: "rate", Value: math.NaN()}, {Name: "fine", Value: 3}} }))
		add(t, r, "panics", Custom("sick", func() []Metric { panic("no metrics\u202e") }))
		add(t, r, "healthy", Custom("well", func() []Metric { return []Metric{{Name: "n", Value: 1}} }))
		h := NewHandler(r)
		s := openStream(h, "")
		for range 3 {
			sources := s.snapshot(t).Sources
			require.Equal(t, `the metric "rate" was omitted: it is not finite`, sources[0].Problem)
			require.Equal(t, map[string]any{"fine": 3.0, invalid: 1.0}, sources[0].Metrics)
			require.Equal(t, `reading the metrics panicked: no metrics\u202e`, sources[1].Problem)
			require.Equal(t, map[string]any{invalid: 1.0}, sources[1].Metrics)
			require.Empty(t, sources[2].Problem)
			require.Equal(t, map[string]any{"n": 1.0, invalid: 0.0}, sources[2].Metrics)
		}
		require.Equal(t, http.StatusOK, get(h, "/snapshot.json").Code)
		h.Close()
		s.cancel()
	})
}

// A custom source that blocks delays nothing: it shows its last metrics until there are new
// ones, and blocks one goroutine.
func TestACustomSourceThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		w := newWheel(t, timingwheel.Options{})
		add(t, r, "w", Wheel(w))
		n, running := 0.0, atomic.Int32{}
		add(t, r, "slow", Custom("slow", func() []Metric {
			require.EqualValues(t, 1, running.Add(1))
			time.Sleep(2500 * time.Millisecond)
			running.Add(-1)
			n++
			return []Metric{{Name: "n", Value: n}}
		}))
		more := func() {
			_, err := w.Schedule(0, time.Hour)
			require.NoError(t, err)
		}
		more()
		h := NewHandler(r)
		begun := time.Now()
		s := openStream(h, "")
		defer func() {
			s.cancel()
			<-s.code
			time.Sleep(5 * time.Second) // so that the source has been read for the last time
		}()
		for i := range 20 {
			sources := s.snapshot(t).Sources
			require.Equal(t, time.Duration(i)*time.Second+customFor, time.Since(begun))
			require.EqualValues(t, i+1, sources[0].Metrics["timers"])
			want := map[string]any{invalid: 0.0, "n": float64(i / 3)}
			if i < 3 {
				want = map[string]any{}
			}
			require.Equal(t, want, sources[1].Metrics, "at second %d", i)
			require.Empty(t, sources[1].Problem)
			more()
		}
	})
}

func TestACustomSourceThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		block := make(chan struct{}, 2)
		block <- struct{}{}
		add(t, r, "stuck", Custom("stuck", func() []Metric { <-block; return []Metric{{Name: "n", Value: 1}} }))
		h := NewHandler(r)
		s := openStream(h, "")
		for i := range 20 {
			source := s.snapshot(t).Sources[0]
			require.Equal(t, map[string]any{"n": 1.0, invalid: 0.0}, source.Metrics)
			if i < 6 { // the function is called again after one second
				require.Empty(t, source.Problem)
			} else {
				require.Equal(t, "its function has not returned since 00:00:01 UTC: these are its last metrics, if it has any", source.Problem)
			}
		}
		asked := time.Now()
		var all sync.WaitGroup
		for range 10 { // they wait together, not one after the other
			all.Go(func() {
				require.Contains(t, get(h, "/snapshot.json").Body.String(), "has not returned")
				require.Equal(t, stuckAfter, time.Since(asked))
			})
		}
		all.Wait()
		close(block)
		require.Empty(t, r.Snapshot().Sources[0].Problem)
		h.Close()
		s.cancel()
	})
}

// Custom sources are read at the same time, once for all concurrent readers.
func TestScrapesDoNotAddUpBlockedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var reads atomic.Int32
		for i := range 5 {
			add(t, r, fmt.Sprint(i), Custom("slow", func() []Metric {
				reads.Add(1)
				time.Sleep(2 * time.Second)
				return []Metric{{Name: "n", Value: 1}}
			}))
		}
		registered := prometheus.NewRegistry()
		registered.MustRegister(r)
		begun := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				require.Len(t, gathered(t, registered)["limbo_slow_n"].Metric, 5)
			})
		}
		all.Wait()
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.EqualValues(t, 5, reads.Load())
	})
}

// A custom source fails if its function ends its goroutine, as t.FailNow does.
func TestACustomSourceThatExits(t *testing.T) {
	r := New()
	add(t, r, "exits", Custom("exits", func() []Metric { runtime.Goexit(); return nil }))
	for range 2 {
		source := r.Snapshot().Sources[0]
		require.Equal(t, map[string]any{invalid: 1.0}, source.Metrics)
		require.Equal(t, "reading the metrics ended its goroutine", source.Problem)
	}
}

// broken is a user's Wheeled that panics in Stats, or when its levels are read.
type broken struct{ stats bool }

func (b broken) Stats() timingwheel.Stats {
	if b.stats {
		panic("no stats")
	}
	return timingwheel.Stats{Pending: 3}
}
func (broken) Levels() []timingwheel.Level { panic("no levels") }

func TestAWheelThatPanics(t *testing.T) {
	r := New()
	add(t, r, "stats", Wheel(broken{true}))
	add(t, r, "levels", Wheel(broken{false}))
	add(t, r, "healthy", Custom("well", func() []Metric { return []Metric{{Name: "n", Value: 1}} }))
	sources := r.Snapshot().Sources
	require.Empty(t, sources[0].Metrics)
	require.NotNil(t, sources[0].Metrics, "{} in JSON")
	require.Contains(t, sources[0].Problem, "reading the metrics panicked: no ")
	require.Equal(t, 3.0, sources[1].Metrics["timers"])
	require.Equal(t, "reading the metrics panicked: no levels", sources[1].Problem)
	require.Empty(t, sources[2].Problem)
	text := scrape(t, r)
	require.NotContains(t, text, `name="stats"`)
	require.Contains(t, text, "\nlimbo_wheel_timers{name=\"levels\"} 3\n")
	require.Contains(t, text, "\nlimbo_well_n{name=\"healthy\"} 1\n")
}

// The author of a custom source chooses the metric for the list by its order.
func TestTheMetricForTheList(t *testing.T) {
	for want, metrics := range map[string][]Metric{
		"waiting": {{Name: "z_total", Type: Counter}, {Name: "by", Label: "x"}, {Name: "waiting"}, {Name: "dead"}},
		"z_total": {{Name: "took", Type: Histogram}, {Name: "z_total", Type: Counter}, {Name: "a_total", Type: Counter}},
		"":        {{Name: "took", Type: Histogram}},
	} {
		r := New()
		add(t, r, "x", Custom("x", func() []Metric { return metrics }))
		require.Equal(t, want, r.Snapshot().Sources[0].Main)
	}
}

// One read provides the metrics of a source and of its wheel.
func TestStatsAreReadOnce(t *testing.T) {
	read := func(p statsCache, s Source) (own, wheel metricList) {
		s.read(&own, p)
		s.wheels[0].read(&wheel, p)
		return own, wheel
	}
	table, err := calls.New[int, int](calls.Options{})
	require.NoError(t, err)
	own, wheel := read(statsCache{table: calls.Stats{Pending: 7, DoWheel: timingwheel.Stats{Pending: 9}}}, Calls(table, nil))
	require.Equal(t, Metric{Name: "waiting", Help: own[0].Help, Value: 7}, own[0])
	require.Equal(t, Metric{Name: "timers", Help: wheel[0].Help, Value: 9}, wheel[0])
	p := statsCache{}
	read(p, Calls(table, nil))
	require.Len(t, p, 1)
	require.NoError(t, table.Shutdown(background))

	sched, err := scheduler.New(scheduler.Options{})
	require.NoError(t, err)
	own, wheel = read(statsCache{sched: scheduler.Stats{Pending: 7, CallWheel: timingwheel.Stats{Pending: 9}}}, Scheduler(sched))
	require.Equal(t, Metric{Name: "pending", Help: own[0].Help, Value: 7}, own[0])
	require.Equal(t, Metric{Name: "timers", Help: wheel[0].Help, Value: 9}, wheel[0])
	_, err = sched.Shutdown(background, timingwheel.Discard)
	require.NoError(t, err)
}

func TestSnapshotJSONIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, takes := 0, time.Duration(0)
		r := New()
		add(t, r, "x", Source{kind: "x", read: func(*metricList, statsCache) { reads++; time.Sleep(takes) }})
		h := NewHandler(r)
		several := func() int {
			for range 50 {
				require.Equal(t, http.StatusOK, get(h, "/snapshot.json").Code)
			}
			return reads
		}
		require.Equal(t, 1, several())
		time.Sleep(time.Second - 1)
		require.Equal(t, 1, several())
		time.Sleep(1)
		takes = time.Second
		require.Equal(t, 2, several())
		time.Sleep(19*time.Second - 1)
		require.Equal(t, 2, several())
		time.Sleep(1)
		require.Equal(t, 3, several())
	})
}

// A source that is removed and added again between two snapshots keeps its lists.
func TestListsOfASourceThatIsAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		h := NewHandler(r)
		lists := func(s *reader) (l Lists) {
			s.snapshot(t)
			name, data := s.event()
			require.Equal(t, "lists", name)
			require.NoError(t, json.Unmarshal([]byte(data), &l))
			return l
		}
		old := newPurgatory(t)
		remove := add(t, r, "p", Purgatory(old, nil))
		s := openStream(h, "?kind=purgatory&name=p")
		require.Empty(t, lists(s).Keys)
		synctest.Wait()
		remove()
		p := newPurgatory(t)
		watch(t, p, time.Hour, "k")
		add(t, r, "p", Purgatory(p, nil))
		for range 3 {
			require.Equal(t, "k", lists(s).Keys[0].Key)
		}
		h.Close()
		s.cancel()
	})
}

// A HEAD request for the stream, which the pattern for GET matches, ends.
func TestHeadOfTheStream(t *testing.T) {
	h := NewHandler(New())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/events", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	require.Empty(t, w.Body.String())
	require.Zero(t, h.feed.Streams())
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/events?kind=x&name=y", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
}

// A slow source is read less often, so that reading takes at most 5 % of the time.
func TestListsAreKeptFor20TimesAsLongAsTheyTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := 0
		r := New()
		add(t, r, "slow", Source{kind: "slow", read: func(*metricList, statsCache) {}, walk: func(*walk) {}, oldest: func() []Group {
			read++
			time.Sleep(time.Second)
			return []Group{}
		}})
		h := NewHandler(r)
		for range 5 {
			require.Equal(t, http.StatusOK, get(h, "/lists.json?kind=slow&name=slow").Code)
		}
		require.Equal(t, 1, read)
		time.Sleep(19*time.Second - 1)
		get(h, "/lists.json?kind=slow&name=slow")
		require.Equal(t, 1, read)
		time.Sleep(1)
		get(h, "/lists.json?kind=slow&name=slow")
		require.Equal(t, 2, read)
	})
}

func TestOnlyGETIsAccepted(t *testing.T) {
	r := New()
	p := newPurgatory(t)
	add(t, r, "p", Purgatory(p, nil))
	h := NewHandler(r)
	for _, path := range []string{"/", "/snapshot.json", "/lists.json?kind=purgatory&name=p", "/search.json?kind=purgatory&name=p&key=k", "/events"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("key=x")))
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
		}
	}
	require.Equal(t, http.StatusNotFound, get(h, "/other").Code)
}

func TestHeaders(t *testing.T) {
	h := NewHandler(New())
	head := get(h, "/snapshot.json").Header()
	require.Equal(t, "no-store", head.Get("Cache-Control"))
	require.Equal(t, "nosniff", head.Get("X-Content-Type-Options"))
	require.NotEmpty(t, head.Get("Content-Security-Policy"))
}

// The page finds its own files and the shared ones, and contains no text that its policy
// forbids.
func TestFiles(t *testing.T) {
	h := NewHandler(New())
	require.Equal(t, "text/html; charset=utf-8", get(h, "/").Header().Get("Content-Type"))
	for _, path := range []string{"/", "/page.css", "/main.js", "/pane.js", "/shared/base.css", "/shared/chart.js", "/shared/dom.js"} {
		w := get(h, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.NotRegexp(t, ` style=| on[a-z]+="|innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`, w.Body.String(), path)
		require.NotRegexp(t, `(src|href)="(https?:)?//|url\(`, w.Body.String(), path)
	}
}

func TestThePathWithoutTheSlash(t *testing.T) {
	h := http.StripPrefix("/limbo", NewHandler(New()))
	w := get(h, "/limbo?x=1")
	require.Equal(t, http.StatusMovedPermanently, w.Code)
	require.Equal(t, "./limbo/", w.Header().Get("Location"))
	require.Equal(t, http.StatusOK, get(h, "/limbo/").Code)
}

func found(t *testing.T, h http.Handler, key string) Found {
	t.Helper()
	w := get(h, "/search.json?"+url.Values{"kind": {"purgatory"}, "name": {"p"}, "key": {key}}.Encode())
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.NotContains(t, w.Body.String(), "null")
	var f Found
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &f))
	return f
}

func TestSearchBounds(t *testing.T) {
	r := New()
	p := newPurgatory(t)
	add(t, r, "p", Purgatory(p, nil))
	add(t, r, "w", Futures(newFutures(t)))
	h := NewHandler(r)
	for i := range maxFound {
		watch(t, p, time.Hour, fmt.Sprintf("key-%d", i), "x")
	}
	watch(t, p, purgatory.NoTimeout, "other", strings.Repeat("long", 1<<14))
	require.Len(t, found(t, h, "key-").Found, maxFound)
	require.False(t, found(t, h, "key-").More)
	require.False(t, found(t, h, "key-").TimedOut)
	watch(t, p, time.Hour, "key-too-many")
	require.Len(t, found(t, h, "key-").Found, maxFound)
	require.True(t, found(t, h, "key-").More)
	require.False(t, found(t, h, "key-").TimedOut)
	require.Len(t, found(t, h, "-99").Found, 1)
	require.Empty(t, found(t, h, "absent").Found)
	long := found(t, h, "longlong").Found
	require.Len(t, long, 1)
	require.Equal(t, []string{"other", strings.Repeat("long", 32) + "… (65536 bytes)"}, long[0].Keys)
	require.Nil(t, long[0].Left, "it never expires")

	for target, is := range map[string]struct {
		code int
		says string
	}{
		"/search.json?kind=purgatory&name=p":                                         {400, "key has 0 bytes, must be 1 to 1024"},
		"/search.json?kind=purgatory&name=p&key=" + strings.Repeat("x", maxSearch+1): {400, "key has 1025 bytes"},
		"/search.json?kind=purgatory&name=q&key=x":                                   {404, "no source has this kind and name"},
		"/search.json?kind=purgatory&name=w&key=x":                                   {404, "cannot be listed"},
		"/lists.json?kind=wheel&name=p":                                              {404, "cannot be listed"},
		"/lists.json":                                                                {404, "no source has this kind and name"},
		"/events?kind=purgatory&name=q":                                              {404, "no source has this kind and name"},
	} {
		w := get(h, target)
		require.Equal(t, is.code, w.Code, target)
		require.Contains(t, w.Body.String(), is.says)
	}
}

func newFutures(t *testing.T) *purgatory.Futures[int] {
	t.Helper()
	f, err := purgatory.NewFutures[int](purgatory.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Shutdown(background)) })
	return f
}

// At most one search runs at a time, for at most 20 s.
func TestOneSearchAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		add(t, r, "endless", Source{kind: "purgatory", read: func(*metricList, statsCache) {}, walk: func(w *walk) {
			for visit(w, "k", 0, time.Time{}, func(k string) []string { return []string{k} }) {
				time.Sleep(time.Millisecond)
			}
		}})
		h := NewHandler(r)
		begun := time.Now()
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- get(h, "/search.json?kind=purgatory&name=endless&key=absent") }()
		synctest.Wait()
		second := get(h, "/search.json?kind=purgatory&name=endless&key=absent")
		require.Equal(t, http.StatusServiceUnavailable, second.Code)
		require.Equal(t, "1", second.Header().Get("Retry-After"))
		w := <-first
		require.JSONEq(t, `{"found": [], "more": false, "timed_out": true}`, w.Body.String())
		require.GreaterOrEqual(t, time.Since(begun), searchFor)
		require.Less(t, time.Since(begun), searchFor+time.Second)
	})
}
