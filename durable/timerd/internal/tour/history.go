package tour

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const told = 3 // keys whose history is told

// history prints what all ledgers say about some of the keys of which something is wrong,
// key by key and in order of time.
func (b *book) history(w io.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	type event struct {
		key  int
		at   int64
		text string
	}
	keys := slices.Sorted(maps.Keys(b.wrong))
	keys = keys[:min(len(keys), told)]
	var events []event
	for _, t := range b.tails {
		if len(keys) == 0 {
			return
		}
		name := strings.TrimSuffix(filepath.Base(t.path), filepath.Ext(t.path))
		again := tail{path: t.path}
		err := again.lines(func(f []string) error {
			if len(f) < 3 {
				return nil // read has reported it
			}
			at, err := strconv.ParseInt(f[1], 10, 64)
			if key := b.keyOf(f); slices.Contains(keys, key) {
				events = append(events, event{key, at, fmt.Sprintf("%-12s %s", name, strings.Join(f, " "))})
			}
			return err
		})
		if err != nil {
			fmt.Fprintln(w, err)
		}
	}
	slices.SortStableFunc(events, func(x, y event) int {
		return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.at, y.at))
	})
	for _, e := range events {
		fmt.Fprintln(w, e.text)
	}
}

// keyOf returns the key that a line of a ledger is about; see ledger.
func (b *book) keyOf(f []string) int {
	number, _ := strconv.Atoi(f[2])
	switch f[0] {
	case "c", "C":
		return number
	case "a":
		number = b.ids[f[2]]
	}
	return b.timer(number).key
}
