package main

import (
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const clusterID = "limbo-example"

// autoCreateWait is how long a Metadata request that creates topics waits for
// their leaders. Clients would come again; most give up sooner than it takes.
const autoCreateWait = time.Second

// handleMetadata creates what it is asked to create, but describes the cluster
// only when the answer is written: a description of every partition is a thousand
// times the size of the request for it, and must not wait in a queue.
func handleMetadata(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.MetadataRequest)
	refused := map[string]*kerr.Error{}
	op := &topicsChange{srv: c.srv, reply: r, build: func() kmsg.Response { return c.describe(q, refused) }, arrived: time.Now()}
	if mayCreate := c.srv.cfg.autoCreate && (q.AllowAutoTopicCreation || q.Version < 4); mayCreate {
		for _, rt := range q.Topics {
			if rt.Topic == nil || c.srv.image().byName[*rt.Topic] != nil {
				continue
			}
			made, err := c.srv.cluster.controller.create(strings.Clone(*rt.Topic), topicShape{partitions: -1, replication: -1}, false)
			if err != nil && err != kerr.TopicAlreadyExists { // somebody else was first: as good
				refused[*rt.Topic] = err
				continue
			}
			op.waiting = append(op.waiting, changingTopic{name: made.name, id: made.id})
		}
	}
	op.wait(c, autoCreateWait)
}

func (c *conn) describe(q *kmsg.MetadataRequest, refused map[string]*kerr.Error) *kmsg.MetadataResponse {
	resp := q.ResponseKind().(*kmsg.MetadataResponse)
	img := c.srv.image()
	resp.ClusterID = kmsg.StringPtr(clusterID)
	resp.ControllerID = -1
	for _, n := range img.nodes {
		resp.Brokers = append(resp.Brokers, c.broker(n))
		if resp.ControllerID < 0 {
			resp.ControllerID = n.id // each of them can reach the controller
		}
	}

	// A null list asks for all topics; in version 0 an empty one does.
	if q.Topics == nil || q.Version == 0 && len(q.Topics) == 0 {
		for _, t := range img.all() {
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
			if found = img.byName[*rt.Topic]; found == nil {
				if !validTopicName(*rt.Topic) {
					notFound = kerr.InvalidTopicException
				} else if err := refused[*rt.Topic]; err != nil {
					notFound = err
				}
			}
		} else if found = img.byID[rt.TopicID]; found == nil {
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

func describeTopic(t *topic) kmsg.MetadataResponseTopic {
	st := kmsg.NewMetadataResponseTopic()
	st.Topic, st.TopicID, st.IsInternal = kmsg.StringPtr(t.name), t.id, t.internal
	st.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.partitions))
	for i, a := range t.partitions {
		sp := &st.Partitions[i]
		sp.Default()
		sp.Partition = int32(i)
		sp.Leader, sp.LeaderEpoch = a.leader, a.epoch
		sp.Replicas, sp.ISR = a.replicas, a.isr
		if a.leader == noLeader {
			sp.ErrorCode = code(kerr.LeaderNotAvailable)
		}
	}
	return st
}

// broker is where this client reaches one of the brokers: at the host it has
// reached this one by. That works for it, also when brokers listen on all
// interfaces, and all brokers of this cluster are on one host.
func (c *conn) broker(n nodeInfo) kmsg.MetadataResponseBroker {
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port = n.id, n.host, n.port
	if host, _, err := net.SplitHostPort(c.nc.LocalAddr().String()); err == nil {
		b.Host = host
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
