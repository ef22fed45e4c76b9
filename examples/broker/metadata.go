package main

import (
	"net"
	"regexp"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	nodeID    = 0
	clusterID = "limbo-example"
)

// handleMetadata creates what it is asked to create at once, but describes the
// cluster only when the answer is written: a description of every partition is
// a thousand times the size of the request for it, and must not wait in a queue.
func handleMetadata(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.MetadataRequest)
	refused := map[string]*kerr.Error{}
	if mayCreate := c.srv.cfg.autoCreate && (q.AllowAutoTopicCreation || q.Version < 4); mayCreate {
		for _, rt := range q.Topics {
			if rt.Topic == nil || c.srv.topics.named(*rt.Topic) != nil {
				continue
			}
			_, err := c.srv.topics.create(*rt.Topic, -1, c.srv.cfg.retentionBytes, false)
			if err != nil && err != kerr.TopicAlreadyExists { // somebody else was first: as good
				refused[*rt.Topic] = err
			}
		}
	}
	r.answer(func() kmsg.Response { return c.describe(q, refused) })
}

func (c *conn) describe(q *kmsg.MetadataRequest, refused map[string]*kerr.Error) *kmsg.MetadataResponse {
	resp := q.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = kmsg.StringPtr(clusterID)
	resp.ControllerID = nodeID
	resp.Brokers = []kmsg.MetadataResponseBroker{c.self()}

	// A null list asks for all topics; in version 0 an empty one does.
	if q.Topics == nil || q.Version == 0 && len(q.Topics) == 0 {
		for _, t := range c.srv.topics.all() {
			resp.Topics = append(resp.Topics, describeTopic(t))
		}
		return resp
	}
	// A topic named again is answered once: or 256 KiB of one name would be
	// answered with a gigabyte.
	seen := map[topicID]bool{}
	for i := range q.Topics {
		rt := &q.Topics[i]
		var found *topic
		notFound := kerr.UnknownTopicOrPartition
		if rt.Topic != nil {
			if found = c.srv.topics.named(*rt.Topic); found == nil {
				if !validTopicName(*rt.Topic) {
					notFound = kerr.InvalidTopicException
				} else if err := refused[*rt.Topic]; err != nil {
					notFound = err
				}
			}
		} else if found = c.srv.topics.identified(rt.TopicID); found == nil {
			notFound = kerr.UnknownTopicID
		}
		if found != nil {
			if !seen[found.id] {
				seen[found.id] = true
				resp.Topics = append(resp.Topics, describeTopic(found))
			}
			continue
		}
		st := kmsg.NewMetadataResponseTopic()
		st.Topic, st.TopicID, st.ErrorCode = rt.Topic, rt.TopicID, code(notFound)
		if st.Topic == nil && q.Version < 12 {
			st.Topic = kmsg.StringPtr("") // may not be null yet
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// onlyNode is every partition's replicas and in-sync replicas. Shared: nobody writes it.
var onlyNode = []int32{nodeID}

func describeTopic(t *topic) kmsg.MetadataResponseTopic {
	st := kmsg.NewMetadataResponseTopic()
	st.Topic, st.TopicID = kmsg.StringPtr(t.name), t.id
	st.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.partitions))
	for i := range st.Partitions {
		sp := &st.Partitions[i]
		sp.Default()
		sp.Partition = int32(i)
		sp.Leader, sp.LeaderEpoch = nodeID, leaderEpoch
		sp.Replicas, sp.ISR = onlyNode, onlyNode
	}
	return st
}

// self is where this client reached the broker: the one address that is known
// to work for it, also when the broker listens on all interfaces.
func (c *conn) self() kmsg.MetadataResponseBroker {
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID = nodeID
	b.Host = "127.0.0.1"
	if host, port, err := net.SplitHostPort(c.nc.LocalAddr().String()); err == nil {
		n, _ := strconv.ParseInt(port, 10, 32)
		b.Host, b.Port = host, int32(n)
	}
	return b
}

// softwareName is Kafka's rule for what ApiVersions 3 carries.
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func handleAPIVersions(_ *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.ApiVersionsRequest)
	resp := q.ResponseKind().(*kmsg.ApiVersionsResponse)
	if q.Version >= 3 && (!softwareName.MatchString(q.ClientSoftwareName) || !softwareName.MatchString(q.ClientSoftwareVersion)) {
		resp.ErrorCode = code(kerr.InvalidRequest)
	} else {
		resp.ApiKeys = apiKeys()
	}
	r.now(resp)
}

// unsupportedAPIVersions answers an ApiVersions request of the future: in
// version 0, with what there is, so that the client can ask again.
func unsupportedAPIVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = code(kerr.UnsupportedVersion)
	resp.ApiKeys = apiKeys()
	return resp
}

func apiKeys() []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(apis))
	for key, api := range apis {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, api.min, api.max
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
	return keys
}

// handleFindCoordinator says that there are no groups here. It exists for the
// sake of clients that look for the key: see apis.
func handleFindCoordinator(_ *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.FindCoordinatorRequest)
	resp := q.ResponseKind().(*kmsg.FindCoordinatorResponse)
	message := kmsg.StringPtr("this broker has no consumer groups and no transactions")
	resp.NodeID, resp.ErrorCode, resp.ErrorMessage = -1, code(kerr.InvalidRequest), message
	for _, key := range q.CoordinatorKeys {
		k := kmsg.NewFindCoordinatorResponseCoordinator()
		k.Key, k.NodeID, k.ErrorCode, k.ErrorMessage = key, -1, code(kerr.InvalidRequest), message
		resp.Coordinators = append(resp.Coordinators, k)
	}
	r.now(resp)
}
