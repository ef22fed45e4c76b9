package observe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

func TestCut(t *testing.T) {
	long := func(n int) string { return fmt.Sprintf("… (%d bytes)", n) }
	for _, c := range []struct{ name, key, is string }{
		{"empty", "", ""},
		{"plain", "orders-7", "orders-7"},
		{"markup is text", `<img src=x onerror=alert(1)></script>`, `<img src=x onerror=alert(1)></script>`},
		{"other scripts", "заказ-注文-طلب", "заказ-注文-طلب"},
		{"controls", "a\x00b\n\t\x1b[31m\x7f", `a\x00b\n\t\x1b[31m\x7f`},
		{"right-to-left override", "user\u202egpj.exe", `user\u202egpj.exe`},
		{"isolates and zero width", "\u2066a\u200b\ufeff", `\u2066a\u200b\ufeff`},
		{"line separators", "\u2028\u2029\u0085", `\u2028\u2029\u0085`},
		{"beyond 16 bits", "\U000e0041", `\U000e0041`},
		{"not UTF-8", "a\xff\xfeb\xe2\x82", `a\xff\xfeb\xe2\x82`},
		{"the replacement character itself", "\ufffd", "\ufffd"},
		{"as long as may be", strings.Repeat("k", 128), strings.Repeat("k", 128)},
		{"one byte more", strings.Repeat("k", 129), strings.Repeat("k", 128) + long(129)},
		{"64 KiB", strings.Repeat("k", 1<<16), strings.Repeat("k", 128) + long(1<<16)},
		{"cut between characters", strings.Repeat("k", 127) + "é", strings.Repeat("k", 127) + long(129)},
		{"cut within what is no character", strings.Repeat("\x80", 200), long(200)},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.is, cut(c.key)) })
	}
}

func TestFormatter(t *testing.T) {
	type id struct{ a, b int }
	require.Equal(t, "<x>", formatter[string](nil)("<x>"))
	require.Equal(t, "{1 2}", formatter[id](nil)(id{1, 2}))
	require.Equal(t, "1/2", formatter(func(k id) string { return fmt.Sprintf("%d/%d", k.a, k.b) })(id{1, 2}))
	require.Equal(t, "(the key's format panicked)", formatter(func(id) string { panic("no") })(id{1, 2}))
}

// session is a key that is a pointer to data that its owner writes under a lock.
type session struct {
	mu     sync.Mutex
	topics map[string]int // guarded by mu
}

type namedSession struct{ *session }

func (s *namedSession) String() string { return "a session" }

// Without a format, data behind a pointer is not read. A read without the owner's lock would be
// a data race, or a fatal error of the runtime.
func TestKeysThatArePointers(t *testing.T) {
	s := &session{topics: map[string]int{}}
	stop, wrote := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(wrote)
		for i := 0; ; i++ {
			s.mu.Lock()
			s.topics[fmt.Sprint(i%100)] = i
			s.mu.Unlock()
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 1000 {
		require.Equal(t, fmt.Sprintf("*observe.session(%p)", s), formatter[*session](nil)(s))
	}
	p, err := purgatory.New[any](purgatory.Options{})
	require.NoError(t, err)
	r := New()
	add(t, r, "p", Purgatory(p, nil))
	_, err = p.TryCompleteElseWatch(background, never{}, time.Hour, any(s))
	require.NoError(t, err)
	for _, path := range []string{"/lists.json?kind=purgatory&name=p", "/search.json?kind=purgatory&name=p&key=session"} {
		require.Contains(t, get(NewHandler(r), path).Body.String(), fmt.Sprintf("*observe.session(%p)", s), path)
	}
	close(stop)
	<-wrote
	require.NoError(t, p.Shutdown(background))

	type pointers struct {
		s  *session
		in any
		a  [1]*session
	}
	address := fmt.Sprintf("%p", s)
	require.Equal(t, "{"+address+" "+address+" ["+address+"]}", formatter[any](nil)(pointers{s, s, [1]*session{s}}))
	require.Equal(t, "a session", formatter[any](nil)(&namedSession{s}))
	require.Equal(t, "gone", formatter[any](nil)(errors.New("gone")))
	require.Equal(t, "*observe.session(0x0)", formatter[*session](nil)(nil))
	require.Equal(t, "<nil>", formatter[any](nil)(nil))
}

// A format that panics spoils the lists, and nothing else.
func TestAFormatThatPanics(t *testing.T) {
	p := newPurgatory(t)
	r := New()
	add(t, r, "p", Purgatory(p, func(string) string { panic("no") }))
	watch(t, p, time.Hour, "k")
	w := get(NewHandler(r), "/lists.json?kind=purgatory&name=p")
	require.Equal(t, 2, strings.Count(w.Body.String(), "(the key's format panicked)"), w.Body)
}

func TestWaitingShows16Keys(t *testing.T) {
	keys := make([]string, 40)
	for i := range keys {
		keys[i] = strings.Repeat("k", 1<<10)
	}
	x := waiting(time.Second, time.Time{}, keys)
	require.Len(t, x.Keys, maxKeys)
	require.Less(t, len(x.Keys[0]), 200)
	require.Nil(t, x.Left)
	require.NotNil(t, waiting(0, time.Time{}, nil).Keys, "[] in JSON")
}

// A walk pauses after each 500 µs of work, and ends when its request no longer waits.
func TestWalkPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 10 * time.Microsecond // the time that the source needs for one operation
		ctx, cancel := context.WithCancel(background)
		w := &walk{ctx: ctx, handle: func(time.Duration, time.Time, []string) bool {
			time.Sleep(each)
			return true
		}}
		keys := func(int) []string { return nil }
		begun := time.Now()
		const n = 100_000
		for range n {
			require.True(t, visit(w, 0, 0, time.Time{}, keys))
		}
		require.GreaterOrEqual(t, time.Since(begun), n*each*3/2)
		require.LessOrEqual(t, time.Since(begun), n*each*2+time.Millisecond)
		cancel()
		more := 0
		for visit(w, 0, 0, time.Time{}, keys) {
			more++
		}
		require.Less(t, more, clockEvery)
	})
}

// A search takes half a processor.
func TestSearchPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, n = 10 * time.Microsecond, 10_000
		s := Source{walk: func(w *walk) {
			for i := range n {
				time.Sleep(each)
				require.True(t, visit(w, i, time.Duration(i), time.Time{}, func(i int) []string { return []string{fmt.Sprint(i)} }))
			}
		}}
		begun := time.Now()
		found, _, _ := search(background, s, "9999")
		require.GreaterOrEqual(t, time.Since(begun), n*each*3/2)
		require.LessOrEqual(t, time.Since(begun), n*each*2+time.Millisecond)
		require.Equal(t, []string{"9999"}, found[0].Keys)
	})
}

// rings, compared with counting each slot into its bucket.
func TestRings(t *testing.T) {
	for _, slots := range []int{4, 128, 256, 4096} {
		level := timingwheel.Level{Span: time.Millisecond, Now: slots - 3, Slots: make([]int, slots)}
		for i := range level.Slots {
			level.Slots[i] = rand.IntN(5)
			level.Pending += level.Slots[i]
		}
		ring := rings([]timingwheel.Level{level})[0]
		n := min(slots, maxBuckets)
		each := slots / n
		require.Len(t, ring.Buckets, n)
		require.InDelta(t, 0.001*float64(each), ring.Span, 1e-12)
		require.Equal(t, (slots-3)/each, ring.Now)
		require.Equal(t, level.Pending, ring.Pending)
		for b := range ring.Buckets {
			sum := 0
			for _, x := range level.Slots[b*each : (b+1)*each] {
				sum += x
			}
			require.Equal(t, sum, ring.Buckets[b])
		}
	}
}

func TestDurations(t *testing.T) {
	var h histogram.Durations
	require.Equal(t, Durations{}, durations(h))
	h.Add(time.Second)
	h.Add(3 * time.Second)
	h.Add(4 * time.Second)
	d := durations(h)
	require.Equal(t, Durations{Count: 3, Sum: 8, Bounds: []float64{1, 2, 4}, Counts: []uint64{1, 0, 2}}, d)
}
