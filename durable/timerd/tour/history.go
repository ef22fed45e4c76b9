package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

const maxPrinted = 3 // maximum number of keys in history

// print prints the events of all ledgers about some of the keys with errors, key by key and in
// order of time.
func (h *history) print(w io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type entry struct {
		event
		key    string
		ledger string
	}
	keys := slices.Sorted(maps.Keys(h.failedKeys))
	keys = keys[:min(len(keys), maxPrinted)]
	var entries []entry
	for _, t := range h.tails {
		if len(keys) == 0 {
			return
		}
		name := strings.TrimSuffix(filepath.Base(t.path), filepath.Ext(t.path))
		again := tail{path: t.path}
		err := again.events(func(e event) error {
			if key := h.nameOf(e); slices.Contains(keys, key) {
				entries = append(entries, entry{e, key, name})
			}
			return nil
		})
		if err != nil {
			fmt.Fprintln(w, err)
		}
	}
	slices.SortStableFunc(entries, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.At, y.At))
	})
	for _, e := range entries {
		fmt.Fprintf(w, "%-12s %s\n", e.ledger, e.line())
	}
}

// nameOf returns the name of an event's key.
func (h *history) nameOf(e event) string {
	if number := cmp.Or(e.Schedule, h.occurrences[e.ID]); number != 0 {
		return scheduleName(h.schedule(number).key)
	}
	switch e.Kind {
	case eventCancel, eventCancelled:
		return keyName(e.Key)
	case eventAcknowledged:
		return keyName(h.timer(h.ids[e.ID]).key)
	}
	return keyName(h.timer(e.Timer).key)
}
