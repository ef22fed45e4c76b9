package meta

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// started starts a controller with brokers 0 to n-1, in virtual time, and returns its log too.
func started(t *testing.T, n int32) (*Controller, []Incarnation, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cfg, err := Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}.WithDefaults()
	require.NoError(t, err)
	c, err := NewController(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Shutdown(context.Background())) })
	var live []Incarnation
	for id := range n {
		i, err := c.Register(Node{ID: id})
		require.NoError(t, err)
		live = append(live, i)
	}
	out.Reset()
	return c, live, &out
}

// A broker is fenced after a silence of exactly its session timeout. Each resulting change of a
// leader or an in-sync set is logged with its cause.
func TestSilentBrokerIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, live, out := started(t, 3)
		topic, err := c.Create("t", TopicSpec{Partitions: 3, Replication: 3}, false)
		require.Nil(t, err)
		session := c.cfg.BrokerSession
		heartbeat := func(ids ...int32) {
			for _, id := range ids {
				require.True(t, c.Heartbeat(id, live[id]))
			}
		}
		heartbeat(0, 1, 2)
		for range 7 {
			time.Sleep(session / 8)
			heartbeat(0, 1)
		}
		time.Sleep(session/8 - time.Millisecond) // at the very end of the session, fencing might come first
		heartbeat(0, 1)
		require.True(t, c.Image().IsLive(2))
		time.Sleep(session / 8)
		synctest.Wait()
		require.False(t, c.Image().IsLive(2))
		require.False(t, c.Heartbeat(2, live[2]))
		for i, a := range c.Image().ByID[topic.ID].Partitions {
			require.Equal(t, []int32{0, 1, 0}[i], a.Leader)
			require.ElementsMatch(t, []int32{0, 1}, a.ISR)
		}
		log := out.String()
		require.Equal(t, 1, strings.Count(log, "leader changed"), log)
		require.Equal(t, 3, strings.Count(log, "in-sync replicas changed"), log)
		require.Equal(t, 5, strings.Count(log, `cause="broker 2 was silent for`), log) // and that it was fenced
		recent := c.Recent()
		require.Len(t, recent, 5)
		require.Equal(t, "topic t is created", recent[3].Cause)
		require.Equal(t, []int{1, 3}, []int{recent[4].Leaders, recent[4].InSyncSets})
		require.Contains(t, recent[4].Cause, "broker 2 was silent")
		for range 2 * maxRecent {
			live[0], _ = c.Register(Node{ID: 0})
		}
		require.Len(t, c.Recent(), maxRecent)
	})
}

// A broker is not fenced for heartbeats that were missed because the controller itself did not run.
func TestTheControllersOwnStallFencesNoBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, out := started(t, 2)
		c.stop() // its clock stands still, as if it did not run
		time.Sleep(10 * c.cfg.BrokerSession)
		synctest.Wait()
		require.Len(t, c.Image().Nodes, 2)
		require.Empty(t, out.String())

		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.uptime.Run(ctx, c.cfg.BrokerSession/16, nil)
		time.Sleep(c.cfg.BrokerSession / 2)
		synctest.Wait()
		require.Len(t, c.Image().Nodes, 2)
		time.Sleep(c.cfg.BrokerSession)
		synctest.Wait()
		require.Empty(t, c.Image().Nodes)
	})
}

// A published image never changes, however many partitions change in the next one.
func TestImagesDoNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, live, _ := started(t, 3)
		for _, name := range []string{"a", "b"} {
			_, err := c.Create(name, TopicSpec{Partitions: 4, Replication: map[string]int16{"a": 3, "b": 1}[name]}, false)
			require.Nil(t, err)
		}
		before := c.Image()
		a, b := before.ByName["a"], before.ByName["b"]
		partitions := append([]Assignment(nil), a.Partitions...)
		c.Fence(1, live[1], "a test")
		after := c.Image()
		require.Equal(t, partitions, a.Partitions)
		require.Same(t, a, before.ByName["a"])
		require.NotSame(t, a, after.ByName["a"])
		require.Equal(t, before.Version+1, after.Version)
		for i := range after.ByName["a"].Partitions {
			require.Equal(t, a.Partitions[i].Version+1, after.ByName["a"].Partitions[i].Version)
		}
		require.NotNil(t, b)
	})
}
