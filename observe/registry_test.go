package observe

import (
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
	"github.com/stretchr/testify/require"
)

// nothing is a custom source without metrics.
func nothing(kind string) Source { return Custom(kind, func() []Metric { return nil }) }

// held returns the sources of a registry, as "kind name".
func held(r *Registry) (names []string) {
	for _, e := range r.all() {
		names = append(names, e.kind+" "+e.name)
	}
	return names
}

func TestAddRefusesNames(t *testing.T) {
	for name, want := range map[string]string{
		"":                       "observe: the name has 0 bytes, must be 1 to 128",
		strings.Repeat("x", 129): "observe: the name has 129 bytes, must be 1 to 128",
		strings.Repeat("é", 65):  "observe: the name has 130 bytes, must be 1 to 128",
		"a\xff":                  `observe: the name "a\xff" is not UTF-8`,
	} {
		r := New()
		remove, err := r.Add(name, nothing("disk"))
		require.EqualError(t, err, want)
		require.Nil(t, remove)
		require.Empty(t, held(r))
	}
	r := New()
	for _, name := range []string{"x", strings.Repeat("x", 128), strings.Repeat("é", 64), "a\nb\"c\\"} {
		_, err := r.Add(name, nothing("disk"))
		require.NoError(t, err, name)
	}
	require.Len(t, held(r), 4)
}

func TestAddRefusesSources(t *testing.T) {
	r := New()
	_, err := r.Add("x", Source{})
	require.EqualError(t, err, "observe: the source is the zero Source, make one with Purgatory or the like")
	for _, kind := range []string{"", "a b", "a-b", "9a", "é", "a:b", "a\n"} {
		_, err := r.Add("x", nothing(kind))
		require.ErrorContains(t, err, "must be of the form ^[a-zA-Z_][a-zA-Z0-9_]*$", kind)
	}
	for _, kind := range []string{"wheel", "queue", "wheel_late", "calls_"} {
		_, err := r.Add("x", nothing(kind))
		require.ErrorContains(t, err, "is this package's own", kind)
	}
	require.Empty(t, held(r))
	for _, kind := range []string{"a", "_", "A9_z", "wheels"} {
		_, err := r.Add("x", nothing(kind))
		require.NoError(t, err, kind)
	}
}

// A nil argument to a source is the caller's mistake, and panics where the source is made.
func TestSourcesOfNil(t *testing.T) {
	for want, f := range map[string]func(){
		"Wheel of nil":             func() { Wheel((*timingwheel.Wheel[int])(nil)) },
		"Scheduler of nil":         func() { Scheduler((*scheduler.Scheduler)(nil)) },
		"Purgatory of nil":         func() { Purgatory[int](nil, nil) },
		"Threshold of nil":         func() { Threshold[int, int](nil, nil) },
		"Futures of nil":           func() { Futures[int](nil) },
		"Calls of nil":             func() { Calls[int, int](nil, nil) },
		"Polls of nil":             func() { Polls((*longpoll.Polls)(nil)) },
		"Queue of nil":             func() { Queue((*delayqueue.Queue[int])(nil)) },
		"Custom of a nil function": func() { Custom("x", nil) },
	} {
		require.PanicsWithValue(t, "observe: "+want, f)
	}
	require.PanicsWithValue(t, "observe: Wheel of nil", func() { Wheel(nil) })
}

func TestNamesAreToldApart(t *testing.T) {
	r := New()
	add := func(name, kind string) func() {
		remove, err := r.Add(name, nothing(kind))
		require.NoError(t, err)
		return remove
	}
	first := add("x", "disk")
	second := add("x", "disk")
	add("x", "tape")
	add("x#3", "disk")
	fourth := add("x", "disk")
	require.Equal(t, []string{"disk x", "disk x#2", "tape x", "disk x#3", "disk x#4"}, held(r))
	first()
	fourth()
	first() // does nothing
	require.Equal(t, []string{"disk x#2", "tape x", "disk x#3"}, held(r))
	add("x", "disk")
	require.Equal(t, []string{"disk x#2", "tape x", "disk x#3", "disk x"}, held(r))
	first() // the name belongs to another source now
	second()
	require.Equal(t, []string{"tape x", "disk x#3", "disk x"}, held(r))
}

func TestWheelsComeAlong(t *testing.T) {
	r := New()
	table, err := calls.New[int, int](calls.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, table.Shutdown(t.Context())) }()
	sched, err := scheduler.New(scheduler.Options{})
	require.NoError(t, err)
	defer func() { _, err := sched.Shutdown(t.Context(), timingwheel.Discard); require.NoError(t, err) }()
	first, err := r.Add("x", Calls(table, nil))
	require.NoError(t, err)
	second, err := r.Add("x", Scheduler(sched))
	require.NoError(t, err)
	require.Equal(t, []string{"calls x", "wheel x", "wheel x go", "scheduler x", "wheel x#2", "wheel x jobs"}, held(r))
	second()
	require.Equal(t, []string{"calls x", "wheel x", "wheel x go"}, held(r))
	first()
	require.Empty(t, held(r))
}

// A shared wheel is observed once, as long as one of its users is.
func TestSharedWheel(t *testing.T) {
	wheel, err := purgatory.NewClock(purgatory.ClockOptions{})
	require.NoError(t, err)
	defer wheel.Close()
	var shared []*purgatory.Purgatory[int]
	for range 3 {
		p, err := purgatory.New[int](purgatory.Options{Clock: wheel})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Shutdown(t.Context())) }()
		shared = append(shared, p)
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		r := New()
		var remove []func()
		for i, p := range shared {
			f, err := r.Add(string(rune('a'+i)), Purgatory(p, nil))
			require.NoError(t, err)
			remove = append(remove, f)
		}
		require.Equal(t, []string{"purgatory a", "wheel a", "purgatory b", "purgatory c"}, held(r))
		for k, i := range order {
			require.Contains(t, held(r), "wheel a")
			remove[i]()
			remove[i]()
			require.Len(t, held(r), []int{3, 2, 0}[k])
		}
		require.Empty(t, held(r))
	}

	r := New()
	own, err := r.Add("broker", Wheel(wheel))
	require.NoError(t, err)
	user, err := r.Add("fetches", Purgatory(shared[0], nil))
	require.NoError(t, err)
	require.Equal(t, []string{"wheel broker", "purgatory fetches"}, held(r), "under its own name")
	require.Equal(t, "broker", r.Snapshot().Sources[1].Wheel)
	own()
	require.Equal(t, []string{"wheel broker", "purgatory fetches"}, held(r))
	user()
	require.Empty(t, held(r))
}

// strange is a Wheeled that cannot be compared.
type strange struct{ levels []timingwheel.Level }

func (strange) Stats() timingwheel.Stats      { return timingwheel.Stats{} }
func (s strange) Levels() []timingwheel.Level { return s.levels }

func TestWheelsThatCannotBeCompared(t *testing.T) {
	r := New()
	for range 2 {
		_, err := r.Add("x", Wheel(strange{}))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"wheel x", "wheel x#2"}, held(r))
}

// For the race detector: sources are added and removed while they are read.
func TestRegistryIsConcurrent(t *testing.T) {
	wheel, err := purgatory.NewClock(purgatory.ClockOptions{})
	require.NoError(t, err)
	defer wheel.Close()
	r := New()
	registered := prometheus.NewRegistry()
	registered.MustRegister(r)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				p, err := purgatory.New[int](purgatory.Options{Clock: wheel})
				require.NoError(t, err)
				remove, err := r.Add("x", Purgatory(p, nil))
				require.NoError(t, err)
				_, err = p.TryCompleteElseWatch(t.Context(), never{}, purgatory.NoTimeout, 1)
				require.NoError(t, err)
				var both sync.WaitGroup
				both.Go(remove)
				both.Go(remove)
				require.NoError(t, p.Shutdown(t.Context()))
				both.Wait()
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for range 50 {
				_, err := registered.Gather()
				require.NoError(t, err)
				r.Snapshot()
			}
		})
	}
	all.Wait()
	require.Empty(t, held(r))
}
