package group

import (
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// Requests of administration tools.

// describeGroups describes the groups as they are when it is the answer's turn: the answer has
// every member's metadata, and must not wait in a queue.
func (co *Coordinator) describeGroups(q *kmsg.DescribeGroupsRequest, r Reply) {
	r.Answer(func() kmsg.Response {
		resp := q.ResponseKind().(*kmsg.DescribeGroupsResponse)
		seen := map[string]bool{}
		for _, id := range q.Groups {
			if !seen[id] { // a repeated group is described once, as Metadata does with topics
				seen[id] = true
				resp.Groups = append(resp.Groups, co.describeGroup(id, q.Version))
			}
		}
		return resp
	})
}

func (co *Coordinator) describeGroup(id string, version int16) kmsg.DescribeGroupsResponseGroup {
	sg := kmsg.NewDescribeGroupsResponseGroup()
	sg.Group = id
	err := co.onGroup(id, false, func(g *group, _ *deferred) { g.describeLocked(&sg) })
	switch {
	case err != kerr.GroupIDNotFound:
		sg.ErrorCode = wire.Code(err)
	case version >= 6:
		sg.State, sg.ErrorCode, sg.ErrorMessage = stateDead.String(), wire.Code(err), kmsg.StringPtr(err.Description)
	default: // older versions have no error for it
		sg.State = stateDead.String()
	}
	return sg
}

// describeLocked includes the chosen protocol and the assignments only while they are valid.
func (g *group) describeLocked(sg *kmsg.DescribeGroupsResponseGroup) {
	sg.State, sg.ProtocolType = g.state.String(), g.protocolType
	if g.state == stateStable {
		sg.Protocol = g.protocol
	}
	for _, m := range g.listLocked() {
		sm := kmsg.NewDescribeGroupsResponseGroupMember()
		sm.MemberID, sm.InstanceID, sm.ClientHost = m.id, m.instance, m.host
		if g.state == stateStable {
			sm.ProtocolMetadata, sm.MemberAssignment = m.metadata(g.protocol), m.assignment
		}
		sg.Members = append(sg.Members, sm)
	}
}

// groupType is Kafka's name for groups that are balanced by their members.
const groupType = "classic"

// listGroups lists the groups that this broker coordinates. Tools ask every broker.
func (co *Coordinator) listGroups(q *kmsg.ListGroupsRequest, r Reply) {
	r.Answer(func() kmsg.Response {
		resp := q.ResponseKind().(*kmsg.ListGroupsResponse)
		if len(q.TypesFilter) > 0 && !containsFold(q.TypesFilter, groupType) {
			return resp
		}
		for _, s := range co.ledShards() {
			groups, err := s.all()
			if err == kerr.CoordinatorLoadInProgress {
				resp.ErrorCode = wire.Code(err)
			}
			for _, g := range groups {
				if sg := g.listed(); len(q.StatesFilter) == 0 || containsFold(q.StatesFilter, sg.GroupState) {
					resp.Groups = append(resp.Groups, sg)
				}
			}
		}
		return resp
	})
}

func (g *group) listed() kmsg.ListGroupsResponseGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	sg := kmsg.NewListGroupsResponseGroup()
	sg.Group, sg.ProtocolType, sg.GroupState, sg.GroupType = g.id, g.protocolType, g.state.String(), groupType
	return sg
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(x string) bool { return strings.EqualFold(x, s) })
}

// groupDeletion is a DeleteGroups request. It makes one write for each shard: a barrier, so that it
// deletes commits made before the deletion and keeps later ones.
type groupDeletion struct {
	reply Reply
	resp  *kmsg.DeleteGroupsResponse

	mu        sync.Mutex
	remaining int                    // shards that are not done, plus one for the handler; guarded by mu
	results   map[string]*kerr.Error // guarded by mu
}

func (co *Coordinator) deleteGroups(q *kmsg.DeleteGroupsRequest, r Reply) {
	d := &groupDeletion{reply: r, resp: q.ResponseKind().(*kmsg.DeleteGroupsResponse), remaining: 1, results: map[string]*kerr.Error{}}
	shards := map[*shard]*shardDeletion{}
	for _, id := range q.Groups {
		if _, again := d.results[id]; again {
			continue
		}
		sg := kmsg.NewDeleteGroupsResponseGroup()
		sg.Group = id
		d.resp.Groups = append(d.resp.Groups, sg)
		s, err := co.shardOf(id)
		d.results[id] = err
		if err != nil {
			continue
		}
		if shards[s] == nil {
			shards[s] = &shardDeletion{request: d, s: s}
			d.remaining++
		}
		shards[s].ids = append(shards[s].ids, id)
	}
	for s, sd := range shards {
		s.write(&write{make: sd.tombstones, barrier: true, done: sd.ended})
	}
	d.end(nil)
}

// end adds the results of one part, and answers after the last one.
func (d *groupDeletion) end(results map[string]*kerr.Error) {
	d.mu.Lock()
	for id, err := range results {
		d.results[id] = err
	}
	d.remaining--
	last := d.remaining == 0
	d.mu.Unlock()
	if !last {
		return
	}
	for i := range d.resp.Groups {
		sg := &d.resp.Groups[i]
		sg.ErrorCode = wire.Code(d.results[sg.Group])
	}
	d.reply.Now(d.resp)
}

// shardDeletion is the part of a groupDeletion in one shard.
type shardDeletion struct {
	request *groupDeletion
	s       *shard
	ids     []string
	groups  []*group // the groups that are being deleted
}

// tombstones returns the barrier's records: for the groups that may be deleted, and for all their
// offsets. No other write is in flight to these groups now.
func (d *shardDeletion) tombstones() (records []log.Record) {
	results := map[string]*kerr.Error{}
	for _, id := range d.ids {
		g, err := d.s.find(id, false)
		if err == nil {
			g.change(func(*deferred) {
				switch g.state {
				case stateEmpty:
					d.groups = append(d.groups, g)
					if g.generation > 0 {
						records = append(records, groupTombstone(id))
					}
					for k := range g.offsets {
						records = append(records, offsetTombstone(id, k))
					}
				case stateDead:
					err = kerr.GroupIDNotFound
				default:
					err = kerr.NonEmptyGroup
				}
			})
		}
		results[id] = err
	}
	d.request.mu.Lock()
	for id, err := range results {
		d.request.results[id] = err
	}
	d.request.mu.Unlock()
	return records
}

// ended removes the offsets that the tombstones have deleted, and ids that were given out. Later
// commits are behind the tombstones in the log, and stay.
func (d *shardDeletion) ended(first int64, err *kerr.Error) {
	results := map[string]*kerr.Error{}
	if d.groups == nil && err != nil { // the shard ended before the barrier's turn
		for _, id := range d.ids {
			results[id] = commitError(err)
		}
	}
	for _, g := range d.groups {
		if err != nil {
			results[g.id] = commitError(err)
			continue
		}
		g.change(func(l *deferred) { g.deleteLocked(first, l) })
	}
	d.request.end(results)
}

func (g *group) deleteLocked(first int64, l *deferred) {
	for k, o := range g.offsets {
		if o.at < first {
			g.co.offsetBytes.release(o.size)
			delete(g.offsets, k)
		}
	}
	if g.state != stateEmpty {
		return // a member has joined since
	}
	for id := range g.pending {
		g.removePendingLocked(id, l)
	}
}
