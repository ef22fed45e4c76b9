package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The record batch of message format 2. kmsg.RecordBatch decodes it. This file adds the parts that
// a broker needs: it checks the checksum over the raw bytes, and writes the offset into the batch
// in place, so that batches pass through unopened, compressed or not.
const (
	batchHeader   = 61 // up to the first record
	lengthEnd     = 12 // the length field counts the bytes after it
	leaderEpochAt = 12
	magicAt       = 16
	crcEnd        = 21 // the checksum covers everything from here on

	CodecMask       = 0x07
	transactional   = 0x10
	controlBatch    = 0x20
	lastCodec       = 4 // zstd
	NoProducer      = -1
	smallestRecord  = 7 // bytes: length, attributes, two deltas, no key, no value, no headers
	currentMagic    = 2
	firstBatchMagic = 3 // produce version from which batches must be of format 2
	CurrentProduce  = 9 // any version from this one on
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ParseBatch checks a produced partition's only batch. The batch's Records point into raw.
func ParseBatch(raw []byte, version int16, maxBytes int) (kmsg.RecordBatch, *kerr.Error) {
	var b kmsg.RecordBatch
	switch {
	case len(raw) > maxBytes:
		return b, kerr.MessageTooLarge
	case len(raw) <= magicAt:
		return b, kerr.CorruptMessage
	case raw[magicAt] < currentMagic || version < firstBatchMagic:
		return b, kerr.UnsupportedForMessageFormat // message sets from before 2017
	case raw[magicAt] > currentMagic:
		return b, kerr.CorruptMessage
	case len(raw) < batchHeader:
		return b, kerr.CorruptMessage
	}
	// Exactly one batch: anything after it would be stored unchecked.
	if int64(int32(binary.BigEndian.Uint32(raw[8:])))+lengthEnd != int64(len(raw)) {
		return b, kerr.CorruptMessage
	}
	if err := b.ReadFrom(raw); err != nil {
		return b, kerr.CorruptMessage
	}
	if uint32(b.CRC) != crc32.Checksum(raw[crcEnd:], castagnoli) {
		return b, kerr.CorruptMessage
	}
	codec := b.Attributes & CodecMask
	switch {
	case codec > lastCodec:
		return b, kerr.UnsupportedCompressionType
	case b.Attributes&controlBatch != 0:
		return b, kerr.InvalidRecord // only brokers write control batches
	case b.Attributes&transactional != 0:
		return b, kerr.InvalidTxnState // there are no transactions here
	case b.NumRecords <= 0 || b.LastOffsetDelta != b.NumRecords-1:
		return b, kerr.InvalidRecord
	case b.ProducerID < NoProducer,
		b.ProducerID > NoProducer && (b.ProducerEpoch < 0 || b.FirstSequence < 0):
		return b, kerr.InvalidRecord
	case codec == 0 && !recordsFit(b.Records, b.NumRecords):
		return b, kerr.InvalidRecord
	}
	return b, nil
}

// recordsFit reports whether there are n plain records that fill the batch exactly. The consumer
// checks compressed records.
func recordsFit(records []byte, n int32) bool {
	if int64(n)*smallestRecord > int64(len(records)) {
		return false
	}
	for range n {
		size, w := binary.Varint(records)
		if w <= 0 || size < 0 || size > int64(len(records)-w) {
			return false
		}
		records = records[w+int(size):]
	}
	return len(records) == 0
}

// placeBatch writes a batch's offset and its leader's epoch. The checksum covers neither field.
func placeBatch(raw []byte, base int64, epoch int32) {
	binary.BigEndian.PutUint64(raw, uint64(base))
	binary.BigEndian.PutUint32(raw[leaderEpochAt:], uint32(epoch))
}

// Record is a record that the broker itself writes; a nil value is a tombstone.
type Record struct{ Key, Value []byte }

// Seal writes a batch's checksum.
func Seal(raw []byte) {
	binary.BigEndian.PutUint32(raw[crcEnd-4:], crc32.Checksum(raw[crcEnd:], castagnoli))
}

// NewBatch returns an uncompressed batch of records, encoded as a client would send it.
func NewBatch(now time.Time, records []Record) []byte {
	ms := now.UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1,
		Magic:                currentMagic,
		LastOffsetDelta:      int32(len(records) - 1),
		FirstTimestamp:       ms,
		MaxTimestamp:         ms,
		ProducerID:           NoProducer,
		ProducerEpoch:        -1,
		FirstSequence:        -1,
		NumRecords:           int32(len(records)),
	}
	for i, kv := range records {
		r := kmsg.Record{OffsetDelta: int32(i), Key: kv.Key, Value: kv.Value}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // a length of 0 takes one byte
		b.Records = r.AppendTo(b.Records)
	}
	b.Length = int32(batchHeader - lengthEnd + len(b.Records))
	raw := b.AppendTo(nil)
	Seal(raw)
	return raw
}

// OffsetByTime finds the first record of a stored batch that is not older than ts. For a compressed
// batch, which is not opened, it returns the first record: a consumer that starts there reads every
// record that is new enough, and some that are not.
func OffsetByTime(raw []byte, ts int64) (offset, timestamp int64) {
	var b kmsg.RecordBatch
	if b.ReadFrom(raw) != nil {
		return -1, -1 // cannot happen: ParseBatch has read it
	}
	offset, timestamp = b.FirstOffset, max(b.FirstTimestamp, min(ts, b.MaxTimestamp))
	if b.Attributes&CodecMask != 0 || b.FirstTimestamp >= ts {
		return b.FirstOffset, timestamp
	}
	// Each record begins with length, attributes, timestamp delta and offset delta; only these are
	// decoded. kmsg.Record would also decode the headers, and trust their count.
	records := b.Records
	for range b.NumRecords {
		size, w := binary.Varint(records)
		if w <= 0 || size < 1 || size > int64(len(records)-w) {
			break
		}
		record := records[w : w+int(size)]
		records = records[w+int(size):]
		timeDelta, tw := binary.Varint(record[1:])
		if tw <= 0 {
			break // a malformed record; the batch's start is a correct answer too
		}
		offsetDelta, ow := binary.Varint(record[1+tw:])
		if ow <= 0 || offsetDelta < 0 || offsetDelta > int64(b.LastOffsetDelta) {
			break
		}
		if at := b.FirstTimestamp + timeDelta; at >= ts {
			return b.FirstOffset + offsetDelta, at
		}
	}
	return offset, timestamp
}

// OffsetsOf returns the first offset of a run of batches and the offset after their last record; 0
// and 0 if there are no batches.
func OffsetsOf(raw []byte) (first, next int64, err error) {
	for begin := raw; len(raw) > 0; {
		var b kmsg.RecordBatch
		if err := b.ReadFrom(raw); err != nil {
			return 0, 0, fmt.Errorf("a broken batch: %w", err)
		}
		if len(raw) == len(begin) {
			first = b.FirstOffset
		}
		next = b.FirstOffset + int64(b.LastOffsetDelta) + 1
		raw = raw[lengthEnd+int(b.Length):]
	}
	return first, next, nil
}

// EachRecord calls f with each record of a plain batch that a broker made: the batch's offset, and
// the key and value, which point into raw. It skips batches and records of any other shape.
func EachRecord(raw []byte, f func(at int64, key, value []byte)) {
	var b kmsg.RecordBatch
	if b.ReadFrom(raw) != nil || b.Attributes&CodecMask != 0 {
		return
	}
	rest := b.Records
	for range b.NumRecords {
		record, ok := takeVarintBytes(&rest)
		if !ok || len(record) == 0 {
			return
		}
		record = record[1:] // attributes
		for range 2 {       // time and offset deltas
			if !skipVarint(&record) {
				return
			}
		}
		key, ok := takeVarintBytes(&record)
		if !ok {
			return
		}
		value, ok := takeVarintBytes(&record)
		if !ok {
			return
		}
		f(b.FirstOffset, key, value)
	}
}

func skipVarint(src *[]byte) bool {
	_, n := binary.Varint(*src)
	if n <= 0 {
		return false
	}
	*src = (*src)[n:]
	return true
}

// takeVarintBytes reads length-prefixed bytes; a length of -1 means null.
func takeVarintBytes(src *[]byte) (b []byte, ok bool) {
	size, n := binary.Varint(*src)
	if n <= 0 || size < -1 || size > int64(len(*src)-n) {
		return nil, false
	}
	rest := (*src)[n:]
	if size == -1 {
		*src = rest
		return nil, true
	}
	b, *src = rest[:size:size], rest[size:]
	return b, true
}
