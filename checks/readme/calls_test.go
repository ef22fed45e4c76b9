package readme

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/stretchr/testify/require"
)

// client is the client in the README: a request is a line with its id.
type client struct {
	calls *calls.Group[uint64, string]
	next  atomic.Uint64
	conn  net.Conn
}

func (c *client) send(id uint64, request string) error {
	_, err := fmt.Fprintln(c.conn, id, request)
	return err
}

func (c *client) receive() (id uint64, reply string, err error) {
	_, err = fmt.Fscanln(c.conn, &id, &reply)
	return id, reply, err
}

// README
func (c *client) call(ctx context.Context, request string) (string, error) {
	id := c.next.Add(1)
	return c.calls.Do(ctx, id, 5*time.Second, func() error { return c.send(id, request) })
}

// read is the connection's reader.
func (c *client) read() {
	for {
		id, reply, err := c.receive()
		if err != nil {
			c.calls.CloseWithError(err) // ends this connection's calls, and refuses later ones
			return
		}
		c.calls.Reply(id, reply) // false: the call has already ended
	}
}

// end

func TestCalls(t *testing.T) {
	table, err := calls.New[uint64, string](calls.Options{})
	require.NoError(t, err)
	here, there := net.Pipe()
	c := &client{calls: table.Group(), conn: here}
	go c.read()
	go func() { // answers two requests, the later one first
		var ids [2]uint64
		var words [2]string
		for i := range ids {
			_, _ = fmt.Fscanln(there, &ids[i], &words[i])
		}
		_, _ = fmt.Fprintln(there, ids[1], "re:"+words[1])
		_, _ = fmt.Fprintln(there, ids[0], "re:"+words[0])
		_, _ = fmt.Fscanln(there, &ids[0], &words[0])
		_ = there.Close()
	}()
	first := make(chan string, 1)
	go func() {
		reply, _ := c.call(t.Context(), "one")
		first <- reply
	}()
	reply, err := c.call(t.Context(), "two")
	require.NoError(t, err)
	require.Equal(t, "re:two", reply)
	require.Equal(t, "re:one", <-first)
	_, err = c.call(t.Context(), "three")
	require.ErrorIs(t, err, io.EOF)
	_, err = c.call(t.Context(), "four")
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, table.Shutdown(t.Context()))
}
