package main

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
)

// groupBench runs a coordinator without a broker around it, in virtual time: its
// requests are handed to the handlers, and its answers taken from their replies.
// The log of offsets is a fake.
type groupBench struct {
	t   *testing.T
	srv *server
	co  *coordinator
	nc  net.Conn
	log *fakeLog

	mu  sync.Mutex
	all []*sent // guarded by mu
}

// sent is a request with its answer to come.
type sent struct {
	t   *testing.T
	req kmsg.Request
	r   *reply
}

// inGroupBench runs a test with a coordinator of all groups, and checks at its
// end that every request was answered and nothing is left.
func inGroupBench(t *testing.T, test func(b *groupBench), change ...func(*groupConfig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newGroupBench(t, change...)
		test(b)
		b.shutdown()
	})
}

func newGroupBench(t *testing.T, change ...func(*groupConfig)) *groupBench {
	cfg := testConfig()
	cfg.offsetsPartitions = 1
	cfg.tick = time.Millisecond
	for _, f := range change {
		f(&cfg.groups)
	}
	require.NoError(t, cfg.groups.validate())
	s := &server{cfg: cfg, ctx: context.Background()}
	s.known.Store(&image{byName: map[string]*topic{"t": {name: "t", partitions: make([]assignment, 100)}}})
	co, err := newCoordinator(s)
	require.NoError(t, err)
	s.groups = co
	nc, other := net.Pipe()
	t.Cleanup(func() { _, _ = nc.Close(), other.Close() })
	b := &groupBench{t: t, srv: s, co: co, nc: nc, log: &fakeLog{}}
	b.lead(1)
	return b
}

// lead is coordinator.lead with the fake log.
func (b *groupBench) lead(epoch int32) *groupShard {
	s := b.shard(epoch)
	groups, size := s.read(b.log.records())
	require.True(b.t, s.open(groups, size))
	return s
}

// shard is that of a new reign, before its groups are read.
func (b *groupBench) shard(epoch int32) *groupShard {
	s := newGroupShard(b.co, nil, 0, epoch)
	s.replicate, s.deleteBefore = b.log.lead(epoch), b.log.deleteBefore
	b.co.mu.Lock()
	b.co.shards[0] = s
	b.co.mu.Unlock()
	return s
}

func (b *groupBench) send(req kmsg.Request) *sent {
	s := b.unhandled(req)
	apis[req.Key()].handle(s.r.conn, req, s.r)
	return s
}

// unhandled is a request that has come, and that the test handles itself.
func (b *groupBench) unhandled(req kmsg.Request) *sent {
	s := &sent{b.t, req, &reply{conn: &conn{srv: b.srv, nc: b.nc, wake: make(chan struct{}, 1)}}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, s)
	return s
}

// hold changes a group and returns what was put off, for the test to do when it
// likes: a goroutine may be held up between the two.
func (g *group) hold(f func(l *later)) (putOff func()) {
	var l later
	g.changeLocking(f, &l)
	return func() {
		for _, call := range l.calls {
			call()
		}
	}
}

// answer is what was answered so far, nil for nothing. As on the wire, only the
// fields of the version are in it.
func (s *sent) answer() kmsg.Response {
	s.r.conn.mu.Lock()
	build := s.r.build
	s.r.conn.mu.Unlock()
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

// answered is the answer, which must be there by now.
func answered[R kmsg.Response](s *sent) R {
	s.t.Helper()
	synctest.Wait()
	a := s.answer()
	require.NotNil(s.t, a, "is not answered")
	return a.(R)
}

// pass lets time pass, and everything happen that can happen until then.
func (b *groupBench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// shutdown ends the coordinator, and requires that nothing is left of it.
func (b *groupBench) shutdown() {
	b.t.Helper()
	shutCtx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(b.t, b.co.shutdown(shutCtx))
	b.requireNothingLeft()
}

func (b *groupBench) requireNothingLeft() {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.all {
		require.NotNil(b.t, s.answer(), "%T is not answered", s.req)
	}
	for _, st := range b.co.stats() {
		require.Zero(b.t, st.Delayed+st.Watched+st.Keys, "left in a purgatory")
	}
	require.Zero(b.t, b.co.sessions.Len(), "sessions left")
	require.Zero(b.t, b.co.groups.Load(), "groups left")
	require.Zero(b.t, b.co.memberBytes.used.Load(), "bytes of members left")
	require.Zero(b.t, b.co.offsetBytes.used.Load(), "bytes of offsets left")
	require.Zero(b.t, b.srv.metrics.panics.Load(), "panics")
}

// group is one that must be there.
func (b *groupBench) group(id string) *group {
	b.t.Helper()
	s, err := b.co.shardOf(id)
	require.Nil(b.t, err)
	g, err := s.find(id, false)
	require.Nil(b.t, err)
	return g
}

func (b *groupBench) state(id string) groupState {
	g := b.group(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

func (b *groupBench) ended(kind operationKind, outcome purgatory.Outcome) uint64 {
	return b.srv.metrics.operations[kind].ended[outcome].Load()
}

// The requests of these tests. Their sessions are long: who tests a session sets
// its own.

func joinReq(version int16, group, member string, change ...func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	q := kmsg.NewPtrJoinGroupRequest()
	q.Version, q.Group, q.MemberID, q.ProtocolType = version, group, member, "consumer"
	q.SessionTimeoutMillis, q.RebalanceTimeoutMillis = 600_000, 10_000
	q.Protocols = protocolsNamed("range")
	for _, f := range change {
		f(q)
	}
	return q
}

// protocolsNamed makes protocols with some metadata.
func protocolsNamed(names ...string) (list []kmsg.JoinGroupRequestProtocol) {
	for _, name := range names {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, []byte("of "+name)
		list = append(list, p)
	}
	return list
}

func withInstance(name string) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.InstanceID = &name }
}

func withSession(d time.Duration) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = int32(d / time.Millisecond) }
}

func withRebalance(d time.Duration) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.RebalanceTimeoutMillis = int32(d / time.Millisecond) }
}

func withProtocols(names ...string) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.Protocols = protocolsNamed(names...) }
}

func syncReq(group string, generation int32, member string, assignments ...string) *kmsg.SyncGroupRequest {
	q := kmsg.NewPtrSyncGroupRequest()
	q.Version, q.Group, q.Generation, q.MemberID = 5, group, generation, member
	for _, id := range assignments {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = id, []byte("for "+id)
		q.GroupAssignment = append(q.GroupAssignment, a)
	}
	return q
}

func heartbeatReq(group string, generation int32, member string) *kmsg.HeartbeatRequest {
	q := kmsg.NewPtrHeartbeatRequest()
	q.Version, q.Group, q.Generation, q.MemberID = 4, group, generation, member
	return q
}

func leaveReq(group string, members ...string) *kmsg.LeaveGroupRequest {
	q := kmsg.NewPtrLeaveGroupRequest()
	q.Version, q.Group = 5, group
	for _, id := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		q.Members = append(q.Members, m)
	}
	return q
}

// newID is what a client is told to join with.
func (b *groupBench) newID(group string, change ...func(*kmsg.JoinGroupRequest)) string {
	b.t.Helper()
	a := answered[*kmsg.JoinGroupResponse](b.send(joinReq(9, group, "", change...)))
	requireCode(b.t, kerr.MemberIDRequired, a.ErrorCode)
	require.NotEmpty(b.t, a.MemberID)
	return a.MemberID
}

// heartbeat is what a member's heartbeat is answered.
func (b *groupBench) heartbeat(group string, generation int32, member string) *kerr.Error {
	b.t.Helper()
	return kerrOf(answered[*kmsg.HeartbeatResponse](b.send(heartbeatReq(group, generation, member))).ErrorCode)
}

func (b *groupBench) requireHeartbeat(want *kerr.Error, group string, generation int32, member string) {
	b.t.Helper()
	require.Equal(b.t, want, b.heartbeat(group, generation, member))
}

func kerrOf(code int16) *kerr.Error {
	if code == 0 {
		return nil
	}
	return kerr.TypedErrorForCode(code)
}

// stableGroup is a group of members that have joined and synced, its leader
// first. It comes about as groups do: they join one after the other within the
// first delay.
func (b *groupBench) stableGroup(group string, members int, change ...func(*kmsg.JoinGroupRequest)) (ids []string, generation int32) {
	b.t.Helper()
	var joins []*sent
	for range members {
		joins = append(joins, b.send(joinReq(9, group, b.newID(group, change...), change...)))
	}
	b.pass(b.co.cfg.initialRebalanceDelay + 2*time.Millisecond)
	return b.syncAll(group, joins)
}

// syncAll has members sync whose joins are answered.
func (b *groupBench) syncAll(group string, joins []*sent) (ids []string, generation int32) {
	b.t.Helper()
	var leader string
	for _, s := range joins {
		a := answered[*kmsg.JoinGroupResponse](s)
		requireCode(b.t, nil, a.ErrorCode)
		generation, leader = a.Generation, a.LeaderID
		if a.MemberID == leader {
			ids = append([]string{leader}, ids...)
		} else {
			ids = append(ids, a.MemberID)
		}
	}
	var syncs []*sent
	for _, id := range ids[1:] {
		syncs = append(syncs, b.send(syncReq(group, generation, id)))
		syncs[len(syncs)-1].requireParked()
	}
	syncs = append([]*sent{b.send(syncReq(group, generation, leader, ids...))}, syncs...)
	for i, s := range syncs {
		a := answered[*kmsg.SyncGroupResponse](s)
		requireCode(b.t, nil, a.ErrorCode)
		require.Equal(b.t, "for "+ids[i], string(a.MemberAssignment))
	}
	require.Equal(b.t, groupStable, b.state(group))
	return ids, generation
}
