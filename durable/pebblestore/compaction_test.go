package pebblestore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever Pebble's tables and compactions do to the deletions, each removes the one
// key that is there: Pebble itself would tell (misuse), and nothing comes back.
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
			require.NoError(t, snapshot.Close()) // it parts what a compaction may join
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
