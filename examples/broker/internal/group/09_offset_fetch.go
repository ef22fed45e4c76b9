package group

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// offsetsQuery is the query for one group: offsets of these topics, or of all topics if nil.
// Version 8 has a separate form, which is converted to this.
type offsetsQuery struct {
	group  string
	topics []kmsg.OffsetFetchRequestTopic
}

// offsetFetch answers with the offsets that are committed when it is the answer's turn. The answer
// can be much longer than its request, and must not wait in a queue.
func (co *Coordinator) offsetFetch(q *kmsg.OffsetFetchRequest, r Reply) {
	r.Answer(func() kmsg.Response {
		resp := q.ResponseKind().(*kmsg.OffsetFetchResponse)
		if q.Version < 8 {
			// Before version 2 a null list asks for nothing.
			query := offsetsQuery{q.Group, q.Topics}
			if query.topics == nil && q.Version < 2 {
				query.topics = []kmsg.OffsetFetchRequestTopic{}
			}
			var err *kerr.Error
			resp.Topics, err = co.fetchOffsets(query, q.Version < 2)
			resp.ErrorCode = wire.Code(err)
			return resp
		}
		seen := map[string]bool{}
		for i := range q.Groups {
			rg := &q.Groups[i]
			if !seen[rg.Group] { // a repeated group is answered once, as Metadata does with topics
				seen[rg.Group] = true
				resp.Groups = append(resp.Groups, co.fetchGroupOffsets(rg))
			}
		}
		return resp
	})
}

// fetchGroupOffsets is fetchOffsets in the form of version 8.
func (co *Coordinator) fetchGroupOffsets(rg *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	query := offsetsQuery{group: rg.Group}
	if rg.Topics != nil {
		query.topics = make([]kmsg.OffsetFetchRequestTopic, len(rg.Topics))
	}
	for i := range rg.Topics {
		query.topics[i] = kmsg.OffsetFetchRequestTopic{Topic: rg.Topics[i].Topic, Partitions: rg.Topics[i].Partitions}
	}
	topics, err := co.fetchOffsets(query, false)
	sg := kmsg.NewOffsetFetchResponseGroup()
	sg.Group, sg.ErrorCode = rg.Group, wire.Code(err)
	for i := range topics {
		st := kmsg.NewOffsetFetchResponseGroupTopic()
		st.Topic = topics[i].Topic
		for _, p := range topics[i].Partitions {
			sp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			sp.Partition, sp.Offset, sp.LeaderEpoch, sp.Metadata, sp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			st.Partitions = append(st.Partitions, sp)
		}
		sg.Topics = append(sg.Topics, st)
	}
	return sg
}

// fetchOffsets reads a group's offsets. An unknown group has none, which is not an error. With
// inPartitions an error is set at each of the partitions, for versions that have no other field for
// it.
func (co *Coordinator) fetchOffsets(query offsetsQuery, inPartitions bool) ([]kmsg.OffsetFetchResponseTopic, *kerr.Error) {
	var offsets map[offsetKey]committedOffset
	err := co.onGroup(query.group, false, func(g *group, _ *deferred) {
		if query.topics == nil {
			offsets = maps.Clone(g.offsets)
			return
		}
		offsets = map[offsetKey]committedOffset{}
		for i := range query.topics {
			for _, p := range query.topics[i].Partitions {
				k := offsetKey{query.topics[i].Topic, p}
				if o, ok := g.offsets[k]; ok {
					offsets[k] = o
				}
			}
		}
	})
	switch {
	case err == kerr.GroupIDNotFound:
		err = nil
	case err != nil && !inPartitions:
		return nil, err
	}
	if query.topics == nil {
		query.topics = topicsOf(offsets)
	}
	return offsetsResponse(query.topics, offsets, err), nil
}

// topicsOf lists all topics and partitions that have offsets.
func topicsOf(offsets map[offsetKey]committedOffset) (topics []kmsg.OffsetFetchRequestTopic) {
	keys := slices.SortedFunc(maps.Keys(offsets), func(a, b offsetKey) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	for _, k := range keys {
		if len(topics) == 0 || topics[len(topics)-1].Topic != k.topic {
			topics = append(topics, kmsg.OffsetFetchRequestTopic{Topic: k.topic})
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, k.partition)
	}
	return topics
}

// offsetsResponse builds the answer, with -1 for partitions without an offset. A partition that is
// named repeatedly is answered once.
func offsetsResponse(query []kmsg.OffsetFetchRequestTopic, offsets map[offsetKey]committedOffset, err *kerr.Error) []kmsg.OffsetFetchResponseTopic {
	topics := make([]kmsg.OffsetFetchResponseTopic, 0, len(query))
	seen := map[offsetKey]bool{}
	for i := range query {
		st := kmsg.NewOffsetFetchResponseTopic()
		st.Topic = query[i].Topic
		for _, p := range query[i].Partitions {
			k := offsetKey{st.Topic, p}
			if seen[k] {
				continue
			}
			seen[k] = true
			sp := kmsg.NewOffsetFetchResponseTopicPartition()
			sp.Partition, sp.ErrorCode = p, wire.Code(err)
			sp.Offset, sp.LeaderEpoch, sp.Metadata = -1, -1, kmsg.StringPtr("")
			if o, ok := offsets[k]; ok {
				sp.Offset, sp.LeaderEpoch, sp.Metadata = o.offset, o.leaderEpoch, kmsg.StringPtr(o.metadata)
			}
			st.Partitions = append(st.Partitions, sp)
		}
		topics = append(topics, st)
	}
	return topics
}
