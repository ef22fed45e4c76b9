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

// HotKey is a key that many operations wait for.
type HotKey struct {
	Key      string  `json:"key"`
	Watching int     `json:"watching"`       // operations that wait for the key
	Oldest   float64 `json:"oldest_seconds"` // age of the oldest of them
}

// Waiting is a pending operation or call.
type Waiting struct {
	Keys []string `json:"keys"`                   // at most 16; none if a purgatory's operation has just ended
	Age  float64  `json:"age_seconds"`            // since it was added
	Left *float64 `json:"left_seconds,omitempty"` // until it expires; absent if it never does
}

// Group is a group of pending operations or calls with the same keys.
type Group struct {
	Waiting     // the oldest
	Count   int `json:"count"` // of operations in the group, among those examined
}

const (
	listed   = 20  // hot keys, and groups of the oldest operations
	oldest   = 200 // operations that are grouped
	maxFound = 100 // results of a search
	maxKey   = 128 // bytes of a key that are shown
	maxKeys  = 16  // keys of an operation that are shown
)

// walk is one iteration over all pending operations. It takes half a processor.
type walk struct {
	ctx      context.Context
	handle   func(age time.Duration, deadline time.Time, keys []string) (more bool)
	visited  int
	until    time.Time // when it pauses next
	timedOut bool      // whether it stopped because ctx is done
}

const (
	walkPeriod = 500 * time.Microsecond // then pause for as long
	clockEvery = 64                     // operations between two readings of the clock
)

// visit handles one operation, and reports whether to continue.
func visit[X any](w *walk, x X, age time.Duration, deadline time.Time, keys func(X) []string) (more bool) {
	if w.visited++; w.visited%clockEvery == 0 && !w.throttle() {
		return false
	}
	return w.handle(age, deadline, keys(x))
}

// throttle pauses if it is time to, and reports whether the request still waits for the walk.
func (w *walk) throttle() bool {
	if w.ctx.Err() != nil {
		w.timedOut = true
		return false
	}
	if now := time.Now(); now.After(w.until) {
		time.Sleep(walkPeriod)
		w.until = time.Now().Add(walkPeriod)
	}
	return true
}

// search returns operations with a key that contains the text, in no order, whether there are
// more, and whether ctx was done before all were examined.
func search(ctx context.Context, s Source, text string) (list []Waiting, more, timedOut bool) {
	list = []Waiting{}
	w := &walk{ctx: ctx}
	w.handle = func(age time.Duration, deadline time.Time, keys []string) bool {
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
	return list, more, w.timedOut
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
// oldest ones. An operation without keys forms its own group. The result is never nil, so that
// it is not null in JSON.
func groupsOf[X any](list []X, show func(X) Waiting) []Group {
	groups, indexes := []Group{}, map[string]int{}
	for _, x := range list {
		w := show(x)
		key := fmt.Sprintf("%q", w.Keys)
		index, known := indexes[key]
		if known && len(w.Keys) > 0 {
			groups[index].Count++
			continue
		}
		indexes[key] = len(groups)
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

// names formats keys.
func names[K any](keys []K, format func(K) string) []string {
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = format(k)
	}
	return list
}

// formatter returns a function that formats keys. If format panics, that spoils a line of the
// page and not the observed process.
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

// plain formats a key as %v does, except for a pointer that does not print itself: fmt would read
// the fields behind it, and their referents, without their owner's locks. Pointers inside a key
// are printed as addresses; keys are comparable, so they contain no maps or slices.
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

// cut limits the length of a key's text. It escapes, as in Go, bytes that are not UTF-8 and
// characters that a terminal or a page could interpret as more than text.
func cut(key string) string {
	original := key
	if len(key) > maxKey {
		key = key[:maxKey]
		for len(key) > 0 && !utf8.RuneStart(original[len(key)]) {
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
	if len(key) < len(original) {
		fmt.Fprintf(&b, "… (%d bytes)", len(original))
	}
	return b.String()
}
