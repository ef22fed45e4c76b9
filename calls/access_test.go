package calls

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No method keeps a lock, whatever it finds. This test runs first: it fails with a message
// where another test would hang.
func TestNoMethodKeepsALock(t *testing.T) {
	table, err := New[int, string](Options{MaxPending: 2})
	require.NoError(t, err)
	g := table.Group()
	free := func(method string) {
		t.Helper()
		for _, g := range []*Group[int, string]{table.ungrouped, g} {
			for i := range g.parts {
				require.True(t, g.parts[i].mu.TryLock(), "%s keeps the lock of a part", method)
				g.parts[i].mu.Unlock()
			}
		}
		require.True(t, table.mu.TryLock(), "%s keeps the table's lock", method)
		table.mu.Unlock()
	}
	broken, ended := errors.New("broken"), make(chan error, 1)
	sent, done := func() error { return nil }, func(_ string, err error) { ended <- err }
	begin := func(want error, method string, id int, send func() error) {
		t.Helper()
		require.ErrorIs(t, g.Go(id, NoTimeout, send, done), want)
		free(method)
	}
	begin(nil, "Go", 1, sent)
	begin(ErrDuplicate, "Go of a duplicate", 1, sent)
	begin(nil, "Go whose send fails", 2, func() error { return broken })
	require.ErrorIs(t, <-ended, broken)
	begin(nil, "Go", 2, sent)
	begin(ErrFull, "Go of one too many", 3, sent)
	for range g.All() {
		free("the body of All")
	}
	free("All")
	require.Equal(t, 2, g.Len())
	free("Len")
	table.Stats()
	free("Stats")
	require.True(t, g.Reply(1, "reply"))
	require.NoError(t, <-ended)
	free("Reply")
	require.False(t, g.Reply(1, "reply"))
	free("Reply without a call")
	require.True(t, g.Fail(2, broken))
	require.ErrorIs(t, <-ended, broken)
	free("Fail")
	ctx, cancel := context.WithCancel(t.Context())
	_, err = g.Do(ctx, 1, time.Hour, func() error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	free("Do")
	g.CloseWithError(broken)
	free("Group.CloseWithError")
	begin(broken, "Go in a group that is closed", 1, sent)
	require.NoError(t, table.Go(1, 1, sent, done))
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a call does not expire")
	}
	require.ErrorIs(t, err, ErrExpired)
	require.NoError(t, table.Shutdown(t.Context())) // and no worker is running
	free("Shutdown")
}
