package group

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/purgatory"
)

// fixture runs a coordinator in virtual time, without a broker: it passes requests to Handle and
// reads the answers from the replies. The log is a fake.
type fixture struct {
	t           *testing.T
	co          *Coordinator
	log         *fakeLog
	wheel       *purgatory.Clock
	start       time.Time
	panics      atomic.Int64
	implausible atomic.Int64 // heartbeats whose time since the last one exceeds the age of the fixture

	heartbeats [purgatory.Failed + 1]atomic.Uint64 // by outcome

	mu  sync.Mutex
	all []*sent // guarded by mu
}

// fixtureTick is the tick of the fixture's timing wheels.
const fixtureTick = time.Millisecond

// sent is a request and its Reply.
type sent struct {
	t        *testing.T
	req      kmsg.Request
	answered chan struct{} // closed when it is answered

	mu    sync.Mutex
	build func() kmsg.Response // guarded by mu; nil: not answered
}

func (s *sent) Now(resp kmsg.Response) { s.Answer(func() kmsg.Response { return resp }) }

func (s *sent) Answer(build func() kmsg.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.build != nil {
		panic("broker: request answered twice")
	}
	s.build = build
	close(s.answered)
}

// withFixture runs a test with a coordinator of all groups, and checks at its end that every
// request was answered and nothing is left.
func withFixture(t *testing.T, test func(b *fixture), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, change...)
		test(b)
		b.shutdown()
	})
}

func newFixture(t *testing.T, change ...func(*Config)) *fixture {
	var cfg Config
	for _, f := range change {
		f(&cfg)
	}
	cfg, err := cfg.WithDefaults()
	require.NoError(t, err)
	b := &fixture{t: t, log: &fakeLog{}, start: time.Now()}
	wheel, err := purgatory.NewClock(purgatory.ClockOptions{Tick: fixtureTick})
	require.NoError(t, err)
	b.co, err = New(cfg, Options{
		Store:       b.log,
		Partitions:  1,
		Clock:       wheel,
		Tick:        fixtureTick,
		OnPanic:     func(purgatory.Panic) { b.panics.Add(1) },
		OnHeartbeat: b.onHeartbeat,
	})
	require.NoError(t, err)
	b.wheel = wheel
	b.lead(1)
	return b
}

func (b *fixture) onHeartbeat(o purgatory.Outcome, waited time.Duration) {
	b.heartbeats[o].Add(1)
	if waited < 0 || waited > time.Since(b.start) {
		b.implausible.Add(1)
	}
}

// lead is Coordinator.Lead, but synchronous.
func (b *fixture) lead(epoch int32) *shard {
	s := b.shard(epoch)
	batches, _ := b.log.Records(0)
	groups, size := s.read(batches)
	require.True(b.t, s.start(groups, size))
	return s
}

// shard returns the shard of a new leader epoch, before its groups are read.
func (b *fixture) shard(epoch int32) *shard {
	s := newShard(b.co, 0, epoch)
	b.log.lead(epoch)
	b.co.mu.Lock()
	b.co.shards[0] = s
	b.co.mu.Unlock()
	return s
}

func (b *fixture) send(req kmsg.Request) *sent {
	s := b.unhandled(req)
	b.co.Handle(req, "/192.0.2.1", s)
	return s
}

// unhandled returns a request as received, for the test to handle itself.
func (b *fixture) unhandled(req kmsg.Request) *sent {
	s := &sent{t: b.t, req: req, answered: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, s)
	return s
}

// changeHeld changes a group and returns the postponed calls, for the test to make later: a
// goroutine may be delayed between the two.
func (g *group) changeHeld(f func(l *deferred)) (makeCalls func()) {
	var l deferred
	g.changeLocking(f, &l)
	return func() {
		for _, call := range l.calls {
			call()
		}
	}
}

// answer returns the answer so far, nil for none. As on the wire, it has only the fields of its
// version.
func (s *sent) answer() kmsg.Response {
	s.mu.Lock()
	build := s.build
	s.mu.Unlock()
	if build == nil {
		return nil
	}
	resp := build()
	require.Equal(s.t, s.req.GetVersion(), resp.GetVersion())
	read := s.req.ResponseKind()
	require.NoError(s.t, read.ReadFrom(resp.AppendTo(nil)))
	return read
}

func (s *sent) requireParked() {
	s.t.Helper()
	synctest.Wait()
	require.Nil(s.t, s.answer(), "is answered, must be parked")
}

// answered returns the answer, which must exist by now.
func answered[R kmsg.Response](s *sent) R {
	s.t.Helper()
	synctest.Wait()
	a := s.answer()
	require.NotNil(s.t, a, "is not answered")
	return a.(R)
}

// pass advances the time, and waits until all goroutines are blocked.
func (b *fixture) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// shutdown ends the coordinator, and requires that it leaves nothing behind.
func (b *fixture) shutdown() {
	b.t.Helper()
	shutCtx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(b.t, b.co.Shutdown(shutCtx))
	require.NoError(b.t, b.wheel.Shutdown(shutCtx))
	b.requireEmpty()
}

func (b *fixture) requireEmpty() {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.all {
		require.NotNil(b.t, s.answer(), "%T is not answered", s.req)
	}
	for _, st := range b.co.Stats() {
		require.Zero(b.t, st.Pending+st.Watched+st.Keys, "left in a purgatory")
	}
	require.Zero(b.t, b.co.sessions.Len(), "sessions left")
	require.Zero(b.t, b.co.groups.Load(), "groups left")
	require.Zero(b.t, b.co.memberBytes.used.Load(), "bytes of members left")
	require.Zero(b.t, b.co.offsetBytes.used.Load(), "bytes of offsets left")
	require.Zero(b.t, b.panics.Load(), "panics")
	require.Zero(b.t, b.implausible.Load(), "implausible waits")
}

// group returns a group, which must exist.
func (b *fixture) group(id string) *group {
	b.t.Helper()
	s, err := b.co.shardOf(id)
	require.Nil(b.t, err)
	g, err := s.find(id, false)
	require.Nil(b.t, err)
	return g
}

func (b *fixture) state(id string) groupState {
	g := b.group(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// The requests of these tests. Their sessions are long; tests of sessions set their own.

// newID returns the id that a client is told to join with.
func (b *fixture) newID(group string, change ...func(*kmsg.JoinGroupRequest)) string {
	b.t.Helper()
	a := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, group, "", change...)))
	kafkatest.RequireCode(b.t, kerr.MemberIDRequired, a.ErrorCode)
	require.NotEmpty(b.t, a.MemberID)
	return a.MemberID
}

// heartbeat returns the answer to a member's heartbeat.
func (b *fixture) heartbeat(group string, generation int32, member string) *kerr.Error {
	b.t.Helper()
	return kerrOf(answered[*kmsg.HeartbeatResponse](b.send(kafkatest.Heartbeat(group, generation, member))).ErrorCode)
}

func (b *fixture) requireHeartbeat(want *kerr.Error, group string, generation int32, member string) {
	b.t.Helper()
	require.Equal(b.t, want, b.heartbeat(group, generation, member))
}

func kerrOf(code int16) *kerr.Error {
	if code == 0 {
		return nil
	}
	return kerr.TypedErrorForCode(code)
}

// stableGroup returns the members of a stable group, its leader first. The members join one after
// the other within InitialRebalanceDelay, and sync.
func (b *fixture) stableGroup(group string, members int, change ...func(*kmsg.JoinGroupRequest)) (ids []string, generation int32) {
	b.t.Helper()
	var joins []*sent
	for range members {
		joins = append(joins, b.send(kafkatest.Join(9, group, b.newID(group, change...), change...)))
	}
	b.pass(b.co.cfg.InitialRebalanceDelay + 2*time.Millisecond)
	return b.syncAll(group, joins)
}

// syncAll syncs the members whose joins were answered.
func (b *fixture) syncAll(group string, joins []*sent) (ids []string, generation int32) {
	b.t.Helper()
	var leader string
	for _, s := range joins {
		a := answered[*kmsg.JoinGroupResponse](s)
		kafkatest.RequireCode(b.t, nil, a.ErrorCode)
		generation, leader = a.Generation, a.LeaderID
		if a.MemberID == leader {
			ids = append([]string{leader}, ids...)
		} else {
			ids = append(ids, a.MemberID)
		}
	}
	var syncs []*sent
	for _, id := range ids[1:] {
		syncs = append(syncs, b.send(kafkatest.Sync(group, generation, id)))
		syncs[len(syncs)-1].requireParked()
	}
	syncs = append([]*sent{b.send(kafkatest.Sync(group, generation, leader, ids...))}, syncs...)
	for i, s := range syncs {
		a := answered[*kmsg.SyncGroupResponse](s)
		kafkatest.RequireCode(b.t, nil, a.ErrorCode)
		require.Equal(b.t, "for "+ids[i], string(a.MemberAssignment))
	}
	require.Equal(b.t, stateStable, b.state(group))
	return ids, generation
}
