package kafkatest

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Join returns a JoinGroup request with a long session timeout. Tests of sessions set their own.
func Join(version int16, group, member string, change ...func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	q := kmsg.NewPtrJoinGroupRequest()
	q.Version, q.Group, q.MemberID, q.ProtocolType = version, group, member, "consumer"
	q.SessionTimeoutMillis, q.RebalanceTimeoutMillis = 600_000, 10_000
	q.Protocols = protocolsNamed("range")
	for _, f := range change {
		f(q)
	}
	return q
}

// protocolsNamed returns protocols with distinct metadata.
func protocolsNamed(names ...string) (list []kmsg.JoinGroupRequestProtocol) {
	for _, name := range names {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, []byte("of "+name)
		list = append(list, p)
	}
	return list
}

// WithInstance makes the member of a Join a static member.
func WithInstance(name string) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.InstanceID = &name }
}

// WithSession sets the session timeout of a Join.
func WithSession(d time.Duration) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = int32(d / time.Millisecond) }
}

// WithRebalance sets the rebalance timeout of a Join.
func WithRebalance(d time.Duration) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.RebalanceTimeoutMillis = int32(d / time.Millisecond) }
}

// WithProtocols sets the protocols of a Join, in order of preference.
func WithProtocols(names ...string) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.Protocols = protocolsNamed(names...) }
}

// Sync returns a SyncGroup request. The leader passes the ids of all members as assignments.
func Sync(group string, generation int32, member string, assignments ...string) *kmsg.SyncGroupRequest {
	q := kmsg.NewPtrSyncGroupRequest()
	q.Version, q.Group, q.Generation, q.MemberID = 5, group, generation, member
	for _, id := range assignments {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = id, []byte("for "+id)
		q.GroupAssignment = append(q.GroupAssignment, a)
	}
	return q
}

// Heartbeat returns a Heartbeat request.
func Heartbeat(group string, generation int32, member string) *kmsg.HeartbeatRequest {
	q := kmsg.NewPtrHeartbeatRequest()
	q.Version, q.Group, q.Generation, q.MemberID = 4, group, generation, member
	return q
}

// Leave returns a LeaveGroup request.
func Leave(group string, members ...string) *kmsg.LeaveGroupRequest {
	q := kmsg.NewPtrLeaveGroupRequest()
	q.Version, q.Group = 5, group
	for _, id := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		q.Members = append(q.Members, m)
	}
	return q
}

// Commit returns an OffsetCommit request for partition 0 of topic t.
func Commit(group string, generation int32, member string, offset int64) *kmsg.OffsetCommitRequest {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group, q.Generation, q.MemberID = 9, group, generation, member
	return AddCommit(q, "t", 0, offset, "")
}

// AddCommit adds an offset to a Commit.
func AddCommit(q *kmsg.OffsetCommitRequest, topic string, partition int32, offset int64, metadata string) *kmsg.OffsetCommitRequest {
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = partition, offset, 7, &metadata
	if n := len(q.Topics); n == 0 || q.Topics[n-1].Topic != topic {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = topic
		q.Topics = append(q.Topics, rt)
	}
	rt := &q.Topics[len(q.Topics)-1]
	rt.Partitions = append(rt.Partitions, rp)
	return q
}

// CommitCode returns the error code of a commit's first partition.
func CommitCode(resp *kmsg.OffsetCommitResponse) int16 { return resp.Topics[0].Partitions[0].ErrorCode }

// OffsetFetch returns an OffsetFetch request for all offsets of a group, or for these partitions of
// topic t.
func OffsetFetch(version int16, group string, partitions ...int32) *kmsg.OffsetFetchRequest {
	q := kmsg.NewPtrOffsetFetchRequest()
	q.Version = version
	if version >= 8 {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group = group
		if partitions != nil {
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic, rt.Partitions = "t", partitions
			rg.Topics = append(rg.Topics, rt)
		}
		q.Groups = append(q.Groups, rg)
		return q
	}
	q.Group = group
	if partitions != nil {
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = "t", partitions
		q.Topics = append(q.Topics, rt)
	}
	return q
}

// DescribeGroups returns a DescribeGroups request.
func DescribeGroups(groups ...string) *kmsg.DescribeGroupsRequest {
	q := kmsg.NewPtrDescribeGroupsRequest()
	q.Version, q.Groups = 5, groups
	return q
}

// ListGroups returns a ListGroups request for groups in these states, or in any state.
func ListGroups(states ...string) *kmsg.ListGroupsRequest {
	q := kmsg.NewPtrListGroupsRequest()
	q.Version, q.StatesFilter = 5, states
	return q
}

// DeleteGroups returns a DeleteGroups request.
func DeleteGroups(groups ...string) *kmsg.DeleteGroupsRequest {
	q := kmsg.NewPtrDeleteGroupsRequest()
	q.Version, q.Groups = 2, groups
	return q
}
