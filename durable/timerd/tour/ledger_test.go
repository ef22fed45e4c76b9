package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process can be killed within a write. Readers ignore the incomplete line wherever they stand,
// and get the lines of the next process whole.
func TestLedgerTornLine(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"", "{", `{"kind":"replies","at":17953806`, string(replies(1795380682153706, 2, "id", 200).line())} {
		path := filepath.Join(t.TempDir(), "ledger")
		reader := &tail{path: path}
		var got []event
		read := func() {
			require.NoError(t, reader.events(func(e event) error { got = append(got, e); return nil }))
		}
		l, err := openLedger(path)
		require.NoError(t, err)
		l.write(acknowledged(1, "id"))
		_, err = l.f.WriteString(part)
		require.NoError(t, err)
		require.NoError(t, l.f.Close())
		read()

		l, err = openLedger(path)
		require.NoError(t, err)
		l.write(acknowledged(2, "id"))
		require.NoError(t, l.f.Close())
		read()
		require.Equal(t, []event{acknowledged(1, "id"), acknowledged(2, "id")}, got, "after %q", part)
	}

	_, err := openLedger(t.TempDir())
	require.Error(t, err, "a folder")
	require.NoError(t, (&tail{path: filepath.Join(t.TempDir(), "none")}).events(nil))
}
