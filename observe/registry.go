package observe

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// Registry holds what is observed. Make one with [New]. All methods are safe for use from
// any goroutine.
//
// It is a [prometheus.Collector] of the unchecked kind, since sources come and go: a
// prometheus.Registry accepts it always, even twice, and its Unregister does not remove it.
// Have one Registry in a program. If a prometheus.Registry has two, with sources of the
// same kind and name, it finds series that are there twice, and refuses every scrape: in
// this case tell them apart by a label, with [prometheus.WrapRegistererWith].
type Registry struct {
	mu      sync.Mutex
	entries []*entry // guarded by mu; in the order in which they came
}

// entry is a source under its name.
type entry struct {
	kind, name string
	source     Source
	users      int    // that have added it; guarded by Registry.mu
	wheel      *entry // that it waits with, the first of source.wheels; nil: it has none
	listing    listing
}

// New makes a registry that holds nothing.
func New() *Registry { return new(Registry) }

// maxName bounds names: they are in every line of a scrape.
const maxName = 128

// Add observes a source under a name of 1 to 128 bytes of UTF-8, until remove is called.
// If another one of its kind has that name already, it is named "name#2", and so on; a name
// that was removed can be had again. An error says what is wrong: with the name, with the
// kind of a [Custom] source, or that the source is the zero Source.
//
// What is shut down has its last figures still, so remove may be called before or after
// that; a second call does nothing.
//
// The wheel of what has one is observed too, under the same name: once if several share
// it, under its own name if it was added first.
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

// addLocked adds an entry, or counts another user of the one there is.
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

// all returns the entries there are.
func (r *Registry) all() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.entries)
}

// find returns the entry of that kind and name; nil if there is none.
func (r *Registry) find(kind, name string) *entry {
	for _, e := range r.all() {
		if e.kind == kind && e.name == name {
			return e
		}
	}
	return nil
}
