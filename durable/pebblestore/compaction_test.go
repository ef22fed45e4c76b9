package pebblestore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// However Pebble's tables and compactions treat the deletions, each removes exactly one key:
// otherwise Pebble would report misuse, or a key would reappear.
func TestCompactions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	steps := 1500
	if long() {
		steps = 100_000
	}
	var l ledger
	w := newWorkload(f.Store, 0, 3, func(e note) { l.note(e) })
	snapshot := f.db.NewSnapshot()
	for i := range steps {
		require.NoError(t, w.next(f.ctx))
		switch w.rnd.IntN(60) {
		case 0, 1:
			require.NoError(t, f.db.Flush())
		case 2:
			require.NoError(t, f.db.Compact(f.ctx, []byte{0}, []byte{2}, false))
		case 3:
			require.NoError(t, snapshot.Close()) // it separates keys that a compaction may join
			snapshot = f.db.NewSnapshot()
		}
		if i%100 == 0 {
			verify(t, f.Store)
		}
	}
	require.NoError(t, snapshot.Close())
	verify(t, f.Store)
	l.check(t, f.Store)
	f.crash()
	verify(t, f.Store)
	l.check(t, f.Store)
}
