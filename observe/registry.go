package observe

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// Registry holds the observed sources. Make one with [New]. All methods are safe for use from
// any goroutine.
//
// It is an unchecked [prometheus.Collector], since sources come and go: a prometheus.Registry
// always accepts it, even twice, and its Unregister does not remove it. Use one Registry in a
// program. If a prometheus.Registry has two of them with sources of the same kind and name, it
// finds duplicate series and rejects every scrape. To use two, distinguish them with a label, by
// [prometheus.WrapRegistererWith].
type Registry struct {
	mu      sync.Mutex
	entries []*entry // guarded by mu; in the order of Add
}

// entry is a source and its name.
type entry struct {
	kind, name string
	source     Source
	users      int    // how many Adds share it; guarded by Registry.mu
	wheel      *entry // the entry of the first of source.wheels; nil if it has none
	listCache  listCache
}

// New makes an empty registry.
func New() *Registry { return new(Registry) }

// maxName limits names, which are in every line of a scrape.
const maxName = 128

// Add observes a source under a name of 1 to 128 bytes of UTF-8, until remove is called. If a
// source of the same kind has that name, the new one is named "name#2", and so on; the name of a
// removed source can be used again. Add returns an error if the name or the kind of a [Custom]
// source is invalid, or if the source is the zero Source.
//
// A source that was shut down keeps its last metrics, so remove may be called before or after
// the shutdown. A second call of remove does nothing.
//
// Add also observes the wheel of a source, under the same name. A shared wheel is observed once,
// under its own name if it was added first.
func (r *Registry) Add(name string, s Source) (remove func(), err error) {
	switch {
	case s.read == nil:
		return nil, errors.New("observe: the source is the zero Source, make one with Purgatory or the like")
	case name == "" || len(name) > maxName:
		return nil, fmt.Errorf("observe: the name has %d bytes, must be 1 to %d", len(name), maxName)
	case !utf8.ValidString(name):
		return nil, fmt.Errorf("observe: the name %q is not UTF-8", name)
	}
	if s.custom != nil {
		if err := checkKind(s.kind); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	added := []*entry{r.addLocked(name, s)}
	for _, w := range s.wheels {
		added = append(added, r.addLocked(name+w.suffix, w.Source))
	}
	if len(added) > 1 {
		added[0].wheel = added[1]
	}
	return sync.OnceFunc(func() { r.remove(added) }), nil
}

// addLocked adds an entry, or adds a user to the entry of a shared wheel.
func (r *Registry) addLocked(name string, s Source) *entry {
	names := map[string]bool{}
	for _, e := range r.entries {
		if s.shared != nil && e.source.shared == s.shared {
			e.users++
			return e
		}
		if e.kind == s.kind {
			names[e.name] = true
		}
	}
	unique := name
	for n := 2; names[unique]; n++ {
		unique = fmt.Sprintf("%s#%d", name, n)
	}
	e := &entry{kind: s.kind, name: unique, source: s, users: 1}
	r.entries = append(r.entries, e)
	return e
}

func (r *Registry) remove(added []*entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range added {
		if e.users--; e.users == 0 {
			r.entries = slices.DeleteFunc(r.entries, func(other *entry) bool { return other == e })
		}
	}
}

// all returns a copy of the list of entries.
func (r *Registry) all() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.entries)
}

// find returns the entry of a kind and name, or nil.
func (r *Registry) find(kind, name string) *entry {
	for _, e := range r.all() {
		if e.kind == kind && e.name == name {
			return e
		}
	}
	return nil
}
