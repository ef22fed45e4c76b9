package main

import (
	"context"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/examples/internal/network"
)

// A peer that never reads blocks no caller: until writeTimeout, calls end at their timeouts, as
// they do without a reply. Then the connection is lost for that reason.
func TestPeerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe() // without a buffer: the first write blocks
		table, err := calls.New[uint64, uint64](calls.Options{})
		require.NoError(t, err)
		began := time.Now()
		c := newClient(near, table)
		const timeout = 50 * time.Millisecond
		for id := range uint64(100) {
			called := time.Now()
			_, err := c.calls.Do(t.Context(), id, timeout, func() error { return c.send(frame{id: id}) })
			require.ErrorIs(t, err, calls.ErrExpired)
			require.Less(t, time.Since(called), 2*timeout) // in virtual time: the wheel's tick
		}
		_, err = c.calls.Do(t.Context(), 1, time.Hour, func() error { return c.send(frame{id: 1}) })
		require.ErrorAs(t, err, new(*lostError))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, writeTimeout, time.Since(began))
		require.ErrorIs(t, c.send(frame{}), os.ErrDeadlineExceeded)
		c.shutdown()
		require.NoError(t, far.Close())
		require.NoError(t, table.Shutdown(context.Background()))
	})
}

// The queue for a peer is bounded, and a frame that does not fit gets an error that names the
// bound. When the peer reads, the queued frames arrive whole and in order.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		l := newLink(near)
		l.limit = 10 * frameSize
		ended := make(chan struct{})
		go l.write(ended)
		require.NoError(t, l.send(frame{id: 0}))
		synctest.Wait() // the first frame is being written
		for id := range uint64(10) {
			require.NoError(t, l.send(frame{id: id + 1}))
		}
		require.EqualError(t, l.send(frame{id: 11}), "the peer does not read: 210 bytes are queued, and at most 210 may be")
		for id := range uint64(11) {
			f, err := readFrame(far)
			require.NoError(t, err)
			require.Equal(t, id, f.id)
		}
		synctest.Wait()
		require.NoError(t, l.send(frame{id: 11}))
		f, err := readFrame(far)
		require.NoError(t, err)
		require.Equal(t, uint64(11), f.id)
		close(ended)
	})
}

// A client that does not read loses its connection at the first reply that does not fit in its
// queue.
func TestServerDropsClientsThatDoNotRead(t *testing.T) {
	s, err := listen(network.Machine)
	require.NoError(t, err)
	near, far := net.Pipe()
	l := newLink(near)
	l.limit = frameSize
	s.reply(reply{l, frame{id: 1}})
	s.reply(reply{l, frame{id: 2}})
	_, err = far.Read(make([]byte, 1))
	require.Error(t, err, "closed")
	require.ErrorContains(t, l.send(frame{id: 3}), "the peer does not read")
	require.NoError(t, s.shutdown(context.Background()))
}
