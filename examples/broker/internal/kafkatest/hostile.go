package kafkatest

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frameOf encodes the parts as one frame.
func frameOf(parts ...any) []byte {
	var body []byte
	for _, p := range parts {
		switch p := p.(type) {
		case []byte:
			body = append(body, p...)
		case string:
			body = append(binary.BigEndian.AppendUint16(body, uint16(len(p))), p...)
		default:
			var err error
			body, err = binary.Append(body, binary.BigEndian, p)
			if err != nil {
				panic(err)
			}
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

const (
	fetchKey    = int16(kmsg.Fetch)
	metadataKey = int16(kmsg.Metadata)
)

// HostileFrames returns frames, by name, for which the broker must close the connection without a
// response and without harm.
func HostileFrames() map[string][]byte {
	length := func(n int32) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), bytes.Repeat([]byte{0}, 64)...)
	}
	spin := []byte{0xff, 0xff, 0xff, 0xff, 0x0f} // a compact count of 2^32-1
	metadata12 := func(body ...any) []byte {
		return frameOf(append([]any{metadataKey, int16(12), int32(1), "c", byte(0)}, body...)...)
	}
	// Requests whose list does not match its count.
	spun := func(key kmsg.Key, version int16, head ...any) []byte {
		parts := append([]any{int16(key), version, int32(1), "c", byte(0)}, head...)
		return frameOf(append(parts, spin)...)
	}
	filled := func(key kmsg.Key, version int16, head ...any) []byte {
		parts := append([]any{int16(key), version, int32(1), "c"}, head...)
		return frameOf(append(parts, int32(1<<17), make([]byte, 1<<17))...)
	}
	g := []byte{2, 'g'} // compact
	return map[string][]byte{
		"length 0":                   length(0),
		"length -1":                  length(-1),
		"length min":                 length(math.MinInt32),
		"length max":                 length(math.MaxInt32),
		"length 7":                   length(7),
		"produce beyond its limit":   append(binary.BigEndian.AppendUint32(nil, 16<<20+1), make([]byte, 64)...),
		"fetch beyond its limit":     append(binary.BigEndian.AppendUint32(nil, 1<<20), append([]byte{0, 1}, make([]byte, 64)...)...),
		"http":                       []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"tls":                        append([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03}, make([]byte, 100)...),
		"unknown key":                frameOf(int16(999), int16(0), int32(1), "c"),
		"negative key":               frameOf(int16(-1), int16(0), int32(1), "c"),
		"a broker's key":             frameOf(int16(4), int16(0), int32(1), "c"),
		"version too new":            frameOf(fetchKey, int16(99), int32(1), "c"),
		"version too old":            frameOf(fetchKey, int16(3), int32(1), "c"),
		"negative version":           frameOf(fetchKey, int16(-1), int32(1), "c"),
		"header only":                frameOf(fetchKey, int16(12), int32(1)),
		"client id beyond the frame": frameOf(fetchKey, int16(12), int32(1), int16(1000)),
		"client id of length -2":     frameOf(fetchKey, int16(12), int32(1), int16(-2), byte(0)),
		"no body":                    frameOf(fetchKey, int16(12), int32(1), "c", byte(0)),
		"bytes after the body":       metadata12(byte(0), byte(0), byte(0), byte(0), []byte("more")),
		"header tags spin":           frameOf(metadataKey, int16(12), int32(1), "c", spin),
		"tags spin":                  metadata12(byte(0), byte(0), byte(0), spin),
		"array spin":                 metadata12(spin, byte(0)),
		"array of all bytes":         metadata12([]byte{0xff, 0x7f}, make([]byte, 1<<14)),
		"broker's tags":              metadata12(byte(0), byte(0), byte(0), byte(1), byte(1), byte(5), make([]byte, 5)),
		"plain array beyond":         frameOf(metadataKey, int16(4), int32(1), "c", int32(math.MaxInt32), byte(0)),
		"array length -2":            frameOf(int16(kmsg.DeleteTopics), int16(1), int32(1), "c", int32(-2), int32(-2)),
		"null where none may be":     frameOf(int16(kmsg.DeleteTopics), int16(1), int32(1), "c", int32(1), int16(-1), int32(0)),
		"produce, topics of all bytes": frameOf(int16(kmsg.Produce), int16(3), int32(1), "c", int16(-1), int16(1), int32(0),
			int32(8<<20), make([]byte, 8<<20)),

		"join, protocols spin":              spun(kmsg.JoinGroup, 6, g, int32(9000), int32(9000), byte(1), byte(0), byte(1)),
		"join, protocols of all bytes":      filled(kmsg.JoinGroup, 4, "g", int32(9000), int32(9000), "", "consumer"),
		"join, metadata beyond":             frameOf(int16(kmsg.JoinGroup), int16(0), int32(1), "c", "g", int32(9000), "", "consumer", int32(1), "range", int32(math.MaxInt32)),
		"join, metadata of length -2":       frameOf(int16(kmsg.JoinGroup), int16(0), int32(1), "c", "g", int32(9000), "", "consumer", int32(1), "range", int32(-2)),
		"sync, assignments spin":            spun(kmsg.SyncGroup, 4, g, int32(1), byte(1), byte(0)),
		"sync, assignments of all bytes":    filled(kmsg.SyncGroup, 0, "g", int32(1), "m"),
		"sync, an assignment's tags spin":   spun(kmsg.SyncGroup, 4, g, int32(1), byte(1), byte(0), byte(2), byte(1), byte(1)),
		"heartbeat, bytes after":            frameOf(int16(kmsg.Heartbeat), int16(0), int32(1), "c", "g", int32(1), "m", byte(0)),
		"heartbeat, a null group":           frameOf(int16(kmsg.Heartbeat), int16(0), int32(1), "c", int16(-1), int32(1), "m"),
		"leave, members spin":               spun(kmsg.LeaveGroup, 4, g),
		"leave, members of all bytes":       filled(kmsg.LeaveGroup, 3, "g"),
		"commit, topics spin":               spun(kmsg.OffsetCommit, 8, g, int32(1), byte(1), byte(0)),
		"commit, topics of all bytes":       filled(kmsg.OffsetCommit, 2, "g", int32(1), "m", int64(-1)),
		"commit, partitions of all bytes":   filled(kmsg.OffsetCommit, 2, "g", int32(1), "m", int64(-1), int32(1), "t"),
		"offset fetch, groups spin":         spun(kmsg.OffsetFetch, 8),
		"offset fetch, partitions spin":     spun(kmsg.OffsetFetch, 8, byte(2), g, byte(2), byte(2), byte('t')),
		"offset fetch, topics of all bytes": filled(kmsg.OffsetFetch, 5, "g"),
		"describe groups of all bytes":      filled(kmsg.DescribeGroups, 0),
		"describe groups spin":              spun(kmsg.DescribeGroups, 5),
		"list groups, states spin":          spun(kmsg.ListGroups, 4),
		"list groups, types spin":           spun(kmsg.ListGroups, 5, byte(1)),
		"delete groups of all bytes":        filled(kmsg.DeleteGroups, 0),
		"delete records, topics":            filled(kmsg.DeleteRecords, 0),
		"delete records, partitions spin":   spun(kmsg.DeleteRecords, 2, byte(2), byte(2), byte('t')),
		"epochs, topics of all bytes":       filled(kmsg.OffsetForLeaderEpoch, 3, int32(-1)),
		"epochs, partitions spin":           spun(kmsg.OffsetForLeaderEpoch, 4, int32(-1), byte(2), byte(2), byte('t')),
		"configs, resources of all bytes":   filled(kmsg.DescribeConfigs, 0),
		"configs, names of all bytes":       filled(kmsg.DescribeConfigs, 0, int32(1), byte(2), "t"),
		"reassignments, replicas spin":      spun(kmsg.AlterPartitionAssignments, 0, int32(1), byte(2), byte(2), byte('t'), byte(2), int32(0)),
	}
}
