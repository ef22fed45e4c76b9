package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// api is what the broker knows about one request key.
type api struct {
	min, max int16
	layout   []field // for the guard that stands before kmsg
	handle   func(c *conn, req kmsg.Request, r *reply)
}

// apis is the version table: what ApiVersions advertises is what is decoded
// and answered, no more.
//
// Produce 0 looks odd and is there for librdkafka, which reads features out of
// the ranges (kcat of Debian carries 2.0): before it compresses with gzip or
// snappy it asks whether Produce 0 exists, though it then sends version 7. Kafka
// 4 keeps it for the same reason (KAFKA-18659). Produce before 3 is answered
// truthfully: its message format is not stored here.
var apis map[int16]api

// init, not a literal: handlers reach ApiVersions, which reads the table, and
// the compiler calls that an initialization cycle.
func init() {
	apis = map[int16]api{
		int16(kmsg.Produce):                   {0, 13, produceLayout, handleProduce},
		int16(kmsg.Fetch):                     {4, 18, fetchLayout, handleFetch},
		int16(kmsg.ListOffsets):               {0, 11, listOffsetsLayout, handleListOffsets},
		int16(kmsg.Metadata):                  {0, 13, metadataLayout, handleMetadata},
		int16(kmsg.OffsetCommit):              {0, 9, offsetCommitLayout, handleOffsetCommit},
		int16(kmsg.OffsetFetch):               {0, 9, offsetFetchLayout, handleOffsetFetch},
		int16(kmsg.FindCoordinator):           {0, 6, findCoordinatorLayout, handleFindCoordinator},
		int16(kmsg.JoinGroup):                 {0, 9, joinGroupLayout, handleJoinGroup},
		int16(kmsg.Heartbeat):                 {0, 4, heartbeatLayout, handleHeartbeat},
		int16(kmsg.LeaveGroup):                {0, 5, leaveGroupLayout, handleLeaveGroup},
		int16(kmsg.SyncGroup):                 {0, 5, syncGroupLayout, handleSyncGroup},
		int16(kmsg.DescribeGroups):            {0, 5, describeGroupsLayout, handleDescribeGroups},
		int16(kmsg.ListGroups):                {0, 5, listGroupsLayout, handleListGroups},
		int16(kmsg.ApiVersions):               {0, 4, apiVersionsLayout, handleAPIVersions},
		int16(kmsg.CreateTopics):              {0, 7, createTopicsLayout, handleCreateTopics},
		int16(kmsg.DeleteTopics):              {0, 6, deleteTopicsLayout, handleDeleteTopics},
		int16(kmsg.DeleteRecords):             {0, 2, deleteRecordsLayout, handleDeleteRecords},
		int16(kmsg.InitProducerID):            {0, 5, initProducerIDLayout, handleInitProducerID},
		int16(kmsg.OffsetForLeaderEpoch):      {0, 4, offsetForLeaderEpochLayout, handleOffsetForLeaderEpoch},
		int16(kmsg.DescribeConfigs):           {0, 4, describeConfigsLayout, handleDescribeConfigs},
		int16(kmsg.DeleteGroups):              {0, 2, deleteGroupsLayout, handleDeleteGroups},
		int16(kmsg.AlterPartitionAssignments): {0, 1, alterPartitionReassignmentsLayout, handleAlterPartitionReassignments},
	}
}

// headerSize is the part of a request that has had the same layout since the
// first Kafka: key, version, correlation id.
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

	// versionUnknown: an ApiVersions request newer than this broker. The client
	// is told in version 0, which every client reads, and asks again.
	versionUnknown bool
}

// decodeRequest turns a frame into a kmsg request. Everything it allocates is
// bounded by maxArrays and the frame's size. Slices of the request may point
// into frame.
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

	// The rest of the header: the client id, never compact, and tags if the
	// request is flexible.
	w := walker{src: frame[headerSize:], tags: maxTags}
	w.skip(w.length(2))
	w.flexible = r.body.IsFlexible()
	w.skipTags()
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

// appendReply frames an answer: length, correlation id, and the empty tags of a
// flexible header. ApiVersions alone keeps the old header at every version, as
// a client must be able to read it before it knows anything of the broker.
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

// frameLimit is how long a frame of key may be. Only produce carries records.
func (c *config) frameLimit(key int16) int {
	if key == int16(kmsg.Produce) {
		return c.maxFrame
	}
	return min(c.maxSmallFrame, c.maxFrame)
}

// code is a Kafka error's number, for the fields of answers.
func code(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}
