package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// api describes the supported versions of one request key.
type api struct {
	min, max int16
	layout   []field // for the guard, which runs before kmsg
}

// apis is the version table: ApiVersions advertises exactly the versions that are decoded and
// answered.
//
// Produce 0 is there for librdkafka, which derives features from the ranges (Debian's kcat has
// version 2.0): before it compresses with gzip or snappy it checks that Produce 0 exists, though it
// then sends version 7. Kafka 4 keeps it for the same reason (KAFKA-18659). A Produce request below
// version 3 gets an honest error: its message format is not supported.
var apis = map[int16]api{
	int16(kmsg.Produce):                   {0, 13, produceLayout},
	int16(kmsg.Fetch):                     {4, 18, fetchLayout},
	int16(kmsg.ListOffsets):               {0, 11, listOffsetsLayout},
	int16(kmsg.Metadata):                  {0, 13, metadataLayout},
	int16(kmsg.OffsetCommit):              {0, 9, offsetCommitLayout},
	int16(kmsg.OffsetFetch):               {0, 9, offsetFetchLayout},
	int16(kmsg.FindCoordinator):           {0, 6, findCoordinatorLayout},
	int16(kmsg.JoinGroup):                 {0, 9, joinGroupLayout},
	int16(kmsg.Heartbeat):                 {0, 4, heartbeatLayout},
	int16(kmsg.LeaveGroup):                {0, 5, leaveGroupLayout},
	int16(kmsg.SyncGroup):                 {0, 5, syncGroupLayout},
	int16(kmsg.DescribeGroups):            {0, 5, describeGroupsLayout},
	int16(kmsg.ListGroups):                {0, 5, listGroupsLayout},
	int16(kmsg.ApiVersions):               {0, 4, apiVersionsLayout},
	int16(kmsg.CreateTopics):              {0, 7, createTopicsLayout},
	int16(kmsg.DeleteTopics):              {0, 6, deleteTopicsLayout},
	int16(kmsg.DeleteRecords):             {0, 2, deleteRecordsLayout},
	int16(kmsg.InitProducerID):            {0, 5, initProducerIDLayout},
	int16(kmsg.OffsetForLeaderEpoch):      {0, 4, offsetForLeaderEpochLayout},
	int16(kmsg.DescribeConfigs):           {0, 4, describeConfigsLayout},
	int16(kmsg.DeleteGroups):              {0, 2, deleteGroupsLayout},
	int16(kmsg.AlterConfigs):              {0, 2, alterConfigsLayout},
	int16(kmsg.CreatePartitions):          {0, 3, createPartitionsLayout},
	int16(kmsg.ElectLeaders):              {0, 2, electLeadersLayout},
	int16(kmsg.IncrementalAlterConfigs):   {0, 1, incrementalAlterConfigsLayout},
	int16(kmsg.OffsetDelete):              {0, 0, offsetDeleteLayout},
	int16(kmsg.AlterPartitionAssignments): {0, 1, alterPartitionReassignmentsLayout},
}

// headerSize is the size of the part of a request that has been the same since the first Kafka:
// key, version, correlation id.
const headerSize = 2 + 2 + 4

var (
	errShortFrame = errors.New("broker: frame is shorter than a request header")
	errUnknownKey = errors.New("broker: unknown api key")
	errVersion    = errors.New("broker: unsupported version")
)

// request is one decoded frame.
type request struct {
	key, version int16
	correlation  int32
	body         kmsg.Request

	// versionUnknown marks an ApiVersions request newer than this broker. The response has version
	// 0, which every client can read, and the client retries.
	versionUnknown bool
}

// decodeRequest decodes a frame with kmsg. Its allocations are bounded by MaxArrays and the frame's
// size. Slices of the request may point into frame.
func decodeRequest(frame []byte, maxArrays int) (request, error) {
	if len(frame) < headerSize {
		return request{}, errShortFrame
	}
	r := request{
		key:         int16(binary.BigEndian.Uint16(frame)),
		version:     int16(binary.BigEndian.Uint16(frame[2:])),
		correlation: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	api, ok := apis[r.key]
	if !ok {
		return r, fmt.Errorf("%w %d", errUnknownKey, r.key)
	}
	r.body = kmsg.RequestForKey(r.key)
	if r.version < api.min || r.version > api.max {
		if r.key == int16(kmsg.ApiVersions) {
			r.versionUnknown = true
			r.body.SetVersion(0)
			return r, nil
		}
		return r, fmt.Errorf("%w: %s %d, not in %d to %d", errVersion, kmsg.NameForKey(r.key), r.version, api.min, api.max)
	}
	r.body.SetVersion(r.version)

	w := walker{src: frame[headerSize:], tags: maxTags}
	w.header(r.body.IsFlexible())
	if w.err != nil {
		return r, w.err
	}
	if err := checkLayout(w.src, api.layout, r.version, w.flexible, maxArrays); err != nil {
		return r, fmt.Errorf("%s %d: %w", kmsg.NameForKey(r.key), r.version, err)
	}
	if err := r.body.ReadFrom(w.src); err != nil {
		return r, fmt.Errorf("%s %d: %w", kmsg.NameForKey(r.key), r.version, err)
	}
	return r, nil
}

// appendReply encodes a response as a frame: length, correlation id, and the empty tags of a
// flexible header. ApiVersions keeps the old header at every version, because a client must be able
// to read it before it knows anything about the broker.
func appendReply(dst []byte, correlation int32, resp kmsg.Response) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		dst = append(dst, 0)
	}
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// Code returns the number of a Kafka error, for the fields of responses.
func Code(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}

// unsupportedAPIVersions returns the response to an ApiVersions request of a newer version: it is
// in version 0 and lists the supported versions, so that the client can retry.
func unsupportedAPIVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = Code(kerr.UnsupportedVersion)
	resp.ApiKeys = APIVersions()
	return resp
}

// APIVersions returns the supported requests and versions.
func APIVersions() []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(apis))
	for key, api := range apis {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, api.min, api.max
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
	return keys
}
