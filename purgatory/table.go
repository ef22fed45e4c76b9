package purgatory

// table is the lists of a shard's keys, by their hashes: open addressing with
// linear probing (Knuth, The Art of Computer Programming 3, 6.4), deletion by
// moving back what follows. A map of Go's would hash a key again that is hashed
// already, to choose its shard, and takes some cache misses more to find it.
//
// The shard's lock guards it. It is between 1/8 and 3/4 full, or small.
type table[K comparable] struct {
	places []tablePlace[K] // length 0 or a power of two
	n      int
}

type tablePlace[K comparable] struct {
	hash uint64
	list *watchers[K] // nil: free
}

const minTable = 8

// home is where the search for a hash begins. Its lowest bits have chosen the
// shard, up to 16 of them: all keys of a shard have the same.
func (t *table[K]) home(hash uint64) int { return int(hash>>16) & (len(t.places) - 1) }

// find is the list of a key, nil if there is none.
func (t *table[K]) find(key K, hash uint64) *watchers[K] {
	if t.n == 0 {
		return nil
	}
	for at := t.home(hash); ; at = (at + 1) & (len(t.places) - 1) {
		switch p := &t.places[at]; {
		case p.list == nil:
			return nil
		case p.hash == hash && p.list.key == key:
			return p.list
		}
	}
}

// add puts a list in, whose key is in no list yet.
func (t *table[K]) add(l *watchers[K]) {
	if 4*(t.n+1) > 3*len(t.places) {
		t.resize(max(minTable, 2*len(t.places)))
	}
	t.n++
	t.put(tablePlace[K]{l.hash, l})
}

func (t *table[K]) put(p tablePlace[K]) {
	at := t.home(p.hash)
	for t.places[at].list != nil {
		at = (at + 1) & (len(t.places) - 1)
	}
	t.places[at] = p
}

// remove takes out a list that is in the table.
func (t *table[K]) remove(l *watchers[K]) {
	mask := len(t.places) - 1
	free := t.home(l.hash)
	for t.places[free].list != l {
		free = (free + 1) & mask
	}
	// What comes behind, up to the next free place, may have been meant for
	// this one or for one before: the first such moves here, and leaves its own.
	for at := (free + 1) & mask; t.places[at].list != nil; at = (at + 1) & mask {
		if (at-t.home(t.places[at].hash))&mask >= (at-free)&mask {
			t.places[free] = t.places[at]
			free = at
		}
	}
	t.places[free] = tablePlace[K]{}
	t.n--
	if len(t.places) > keepKeys && 8*t.n < len(t.places) {
		t.resize(len(t.places) / 4)
	}
}

func (t *table[K]) resize(size int) {
	old := t.places
	t.places = make([]tablePlace[K], size)
	for _, p := range old {
		if p.list != nil {
			t.put(p)
		}
	}
}
