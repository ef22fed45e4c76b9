package observe

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/purgatory"
)

// HotKey is a key that many wait for.
type HotKey struct {
	Key      string  `json:"key"`
	Watching int     `json:"watching"`       // operations that wait for it
	Oldest   float64 `json:"oldest_seconds"` // for how long the oldest of them has waited
}

// Waiting is an operation, or a call, that waits.
type Waiting struct {
	Keys []string `json:"keys"`                   // 16 at most; those of a purgatory's, none if it has just ended
	Age  float64  `json:"age_seconds"`            // since it came
	Left *float64 `json:"left_seconds,omitempty"` // until it expires; absent: it never does
}

// Group is operations, or calls, that wait for the same keys.
type Group struct {
	Waiting     // the one that has waited longest
	Count   int `json:"count"` // of them, among those that were looked at
}

const (
	listed   = 20  // hot keys, and groups of the oldest operations
	oldest   = 200 // operations that are grouped
	maxFound = 100 // results of a search
	maxKey   = 128 // bytes of a key that are shown
	maxKeys  = 16  // keys of an operation that are shown
)

// walk is one way through all pending operations. It takes half a processor.
type walk struct {
	ctx   context.Context
	met   func(age time.Duration, deadline time.Time, keys []string) (more bool)
	seen  int
	until time.Time // when it rests next
	late  bool      // whether it was ended because ctx is done
}

const (
	workFor  = 500 * time.Microsecond // and as long a rest
	workEach = 64                     // operations between two readings of the clock
)

// meet is called with each operation, and reports whether to go on.
func meet[X any](w *walk, x X, age time.Duration, deadline time.Time, keys func(X) []string) (more bool) {
	if w.seen++; w.seen%workEach == 0 && !w.goesOn() {
		return false
	}
	return w.met(age, deadline, keys(x))
}

// goesOn rests if it is time, and reports whether anybody still waits for the walk.
func (w *walk) goesOn() bool {
	if w.ctx.Err() != nil {
		w.late = true
		return false
	}
	if now := time.Now(); now.After(w.until) {
		time.Sleep(workFor)
		w.until = time.Now().Add(workFor)
	}
	return true
}

// search returns operations one of whose keys contains the text, in no order, whether there
// are more, and whether ctx was done before all had been seen.
func search(ctx context.Context, s Source, text string) (list []Waiting, more, timedOut bool) {
	list = []Waiting{}
	w := &walk{ctx: ctx}
	w.met = func(age time.Duration, deadline time.Time, keys []string) bool {
		if !slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, text) }) {
			return true
		}
		if len(list) == maxFound {
			more = true
			return false
		}
		list = append(list, waiting(age, deadline, keys))
		return true
	}
	s.walk(w)
	return list, more, w.late
}

func waiting(age time.Duration, deadline time.Time, keys []string) Waiting {
	x := Waiting{Keys: make([]string, 0, min(len(keys), maxKeys)), Age: age.Seconds()}
	for _, k := range keys[:min(len(keys), maxKeys)] {
		x.Keys = append(x.Keys, cut(k))
	}
	if !deadline.IsZero() {
		left := time.Until(deadline).Seconds()
		x.Left = &left
	}
	return x
}

// groupsOf groups operations, the oldest first, by their keys, and returns the groups with the
// oldest ones. Those without keys are not told apart by them, so each is alone. No groups are
// not null in JSON.
func groupsOf[X any](list []X, show func(X) Waiting) []Group {
	groups, places := []Group{}, map[string]int{}
	for _, x := range list {
		w := show(x)
		same := fmt.Sprintf("%q", w.Keys)
		place, known := places[same]
		if known && len(w.Keys) > 0 {
			groups[place].Count++
			continue
		}
		places[same] = len(groups)
		groups = append(groups, Group{w, 1})
	}
	return groups[:min(len(groups), listed)]
}

func hotKeys[K comparable](spots []purgatory.Hotspot[K], format func(K) string) []HotKey {
	list := make([]HotKey, len(spots))
	for i, h := range spots {
		list[i] = HotKey{cut(format(h.Key)), h.Watching, h.Oldest.Seconds()}
	}
	return list
}

// names prints keys.
func names[K any](keys []K, format func(K) string) []string {
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = format(k)
	}
	return list
}

// formatter is how keys are printed. A format that panics spoils a line of the page, and
// not the process that is looked at.
func formatter[K any](format func(K) string) func(K) string {
	if format == nil {
		format = plain[K]
	}
	return func(k K) (text string) {
		defer func() {
			if recover() != nil {
				text = "(the key's format panicked)"
			}
		}()
		return format(k)
	}
}

// plain prints a key as %v does, unless that would read what the key points to: fmt prints
// the fields behind a pointer, and what they lead to, without their owner's locks. Of what a
// key itself holds it prints pointers as addresses, and since keys are comparable they hold
// no maps and no slices.
func plain[K any](k K) string {
	switch x := any(k).(type) {
	case string:
		return x
	case fmt.Formatter, fmt.Stringer, error: // they print themselves
	default:
		if reflect.ValueOf(x).Kind() == reflect.Pointer {
			return fmt.Sprintf("%T(%p)", x, x)
		}
	}
	return fmt.Sprint(k)
}

// cut bounds what is shown of a key. What is not UTF-8, and what a terminal or a page could
// take for more than text, is escaped as in Go.
func cut(key string) string {
	whole := key
	if len(key) > maxKey {
		key = key[:maxKey]
		for len(key) > 0 && !utf8.RuneStart(whole[len(key)]) {
			key = key[:len(key)-1]
		}
	}
	var b strings.Builder
	for i, r := range key {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(key[i:]); n == 1 {
				fmt.Fprintf(&b, `\x%02x`, key[i])
				continue
			}
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := fmt.Sprintf("%+q", r) // in single quotes
		b.WriteString(q[1 : len(q)-1])
	}
	if len(key) < len(whole) {
		fmt.Fprintf(&b, "… (%d bytes)", len(whole))
	}
	return b.String()
}
