package pebblestore

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/seed-782fa212/limbo/durable/store"
)

// The layout of keys; doc.go shows the whole. A shard's keys begin with keyShard, the shard's
// number in two bytes, and the kind. Numbers are big-endian, so that keys sort by them.
const (
	keyConfig byte = 0
	keyShard  byte = 1

	kindMeta      byte = 'm' // the shard's record
	kindRecord    byte = 'r' // timer's key: the timer
	kindBody      byte = 'b' // number: a body too large for its record
	kindLane      byte = 'w' // lane, due, timer's key: a waiting timer
	kindLease     byte = 'l' // timer's key: a lease
	kindSuccessor byte = 's' // timer's key: the successor of a leased timer
	kindDead      byte = 'd' // time of death, timer's key: a dead letter
	kindPlan      byte = 'p' // plan's key: the part of a plan that is not in its timer
)

// maxPrefix is the length of the longest prefix of a timer's key in a key.
const maxPrefix = 1 + 2 + 1 + 1 + 8

// prefix begins the keys of one kind in a shard.
func prefix(b []byte, shard int, kind byte) []byte {
	return append(binary.BigEndian.AppendUint16(append(b, keyShard), uint16(shard)), kind)
}

func metaKey(b []byte, shard int) []byte { return prefix(b, shard, kindMeta) }

// timerKey is a key of kindRecord, kindLease, kindSuccessor or kindPlan.
func timerKey(b []byte, shard int, kind byte, key string) []byte {
	return append(prefix(b, shard, kind), key...)
}

func bodyKey(b []byte, shard int, number uint64) []byte {
	return binary.BigEndian.AppendUint64(prefix(b, shard, kindBody), number)
}

func laneKey(b []byte, shard, lane int, at store.Millis, key string) []byte {
	return appendPosition(append(prefix(b, shard, kindLane), byte(lane)), at, key)
}

func deadKey(b []byte, shard int, died store.Millis, key string) []byte {
	return appendPosition(prefix(b, shard, kindDead), died, key)
}

// lanePrefix begins the keys of a lane; a position follows it.
func lanePrefix(b []byte, shard, lane int) []byte {
	return append(prefix(b, shard, kindLane), byte(lane))
}

// appendPosition appends a position: a time, then a timer's key. The keys of a lane, and those of
// the dead letters, sort by it.
func appendPosition(b []byte, at store.Millis, key string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(at)), key...)
}

func positionTime(pos []byte) store.Millis {
	return store.Millis(binary.BigEndian.Uint64(pos))
}

func positionKey(pos []byte) string { return string(pos[8:]) }

// after returns the first key after all keys that begin with p. One byte of p, the kind, is not
// 0xff.
func after(p []byte) []byte {
	end := bytes.TrimRight(p, "\xff")
	end = slices.Clone(end)
	end[len(end)-1]++
	return end
}
