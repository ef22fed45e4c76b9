package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Batch is one record batch as it is sent: once the offset is written, its bytes never change.
// Fetches may copy them, and ListOffsets may read them, without a lock.
type Batch struct {
	Base, last   int64 // offsets of its first and last record
	position     int64 // bytes appended before it since the log began
	MaxTimestamp int64
	Raw          []byte
}

// batchOverhead is charged for each batch in addition to its bytes. Without it, a million
// one-record batches would use far more memory than the retention limit allows.
const batchOverhead = 96

// Log is one replica's records in memory: a gapless run of batches. Retention removes batches from
// the front; a follower truncates the end where its log diverges from its leader's. Its owner's
// lock guards it.
type Log struct {
	batches []Batch
	epochs  []EpochStart // of the batches, ascending; see epoch.go
	start   int64        // log start offset: in the first batch, or next when empty
	next    int64        // log end offset
	written int64        // bytes ever appended, without those truncated
	size    int64        // bytes of batches, with overhead
}

// Start returns the log's first offset, which may lie inside its first batch.
func (l *Log) Start() int64 { return l.start }

// End returns the offset after the last record.
func (l *Log) End() int64 { return l.next }

// Size returns the bytes of all batches, including the overhead of each.
func (l *Log) Size() int64 { return l.size }

// Len returns the number of batches.
func (l *Log) Len() int { return len(l.batches) }

// SizeFrom returns the bytes of the batches that are not entirely below offset.
func (l *Log) SizeFrom(offset int64) int64 {
	n := l.below(offset)
	if n == len(l.batches) {
		return 0
	}
	return l.written - l.batches[n].position
}

// Append takes ownership of raw, a leader's new batch.
func (l *Log) Append(raw []byte, epoch, records int32, maxTimestamp int64) (base int64) {
	base = l.next
	placeBatch(raw, base, epoch)
	l.add(Batch{Base: base, last: base + int64(records) - 1, MaxTimestamp: maxTimestamp, Raw: raw}, epoch)
	return base
}

// add stores a batch whose base offset, the log's end, is already set.
func (l *Log) add(b Batch, epoch int32) {
	b.position = l.written
	l.epochs = addEpoch(l.epochs, epoch, b.Base)
	l.batches = append(l.batches, b)
	l.next = b.last + 1
	l.written += int64(len(b.Raw))
	l.size += int64(len(b.Raw)) + batchOverhead
}

var (
	// ErrNotNext is the error for batches that do not begin at the log's end.
	ErrNotNext   = errors.New("batch is not the next one")
	errTruncated = errors.New("batch is cut short")
	errChecksum  = errors.New("batch with a wrong checksum")
)

// AppendAll takes ownership of raw, batches as their leader stores them, and calls stored with
// each. It returns an error at the first malformed batch, and keeps the batches before it.
func (l *Log) AppendAll(raw []byte, stored func(*kmsg.RecordBatch)) error {
	for len(raw) > 0 {
		if len(raw) < batchHeader {
			return errTruncated
		}
		size := lengthEnd + int64(int32(binary.BigEndian.Uint32(raw[8:])))
		if size < batchHeader || size > int64(len(raw)) {
			return errTruncated
		}
		var b kmsg.RecordBatch
		one := raw[:size:size]
		raw = raw[size:]
		if err := b.ReadFrom(one); err != nil {
			return err
		}
		if uint32(b.CRC) != crc32.Checksum(one[crcEnd:], castagnoli) {
			return errChecksum
		}
		if len(l.batches) == 0 && b.FirstOffset < l.next {
			l.next = b.FirstOffset // the leader's log starts inside this batch
		}
		if b.FirstOffset != l.next || b.LastOffsetDelta < 0 {
			return fmt.Errorf("%w: at %d, not %d", ErrNotNext, b.FirstOffset, l.next)
		}
		l.add(Batch{
			Base:         b.FirstOffset,
			last:         b.FirstOffset + int64(b.LastOffsetDelta),
			MaxTimestamp: b.MaxTimestamp,
			Raw:          one,
		}, b.PartitionLeaderEpoch)
		stored(&b)
	}
	return nil
}

// Each calls f with each batch, in order.
func (l *Log) Each(f func(*kmsg.RecordBatch)) {
	for _, stored := range l.batches {
		var b kmsg.RecordBatch
		if b.ReadFrom(stored.Raw) == nil { // cannot fail: the batch was decoded before it was stored
			f(&b)
		}
	}
}

// Trim drops batches from the front until at most limit bytes are kept, except the last batch (a
// log must not forget the batch that it has just acknowledged) and batches that reach beyond
// committed, which a replica may still need. It returns the number of bytes freed.
func (l *Log) Trim(limit, committed int64) (freed int64) {
	n := 0
	for n < len(l.batches)-1 && l.size-freed > limit && l.batches[n].last < committed {
		freed += int64(len(l.batches[n].Raw)) + batchOverhead
		n++
	}
	l.drop(n)
	return freed
}

// Expire drops committed batches from the front whose records are all older than before, in ms
// since 1970. It returns the number of bytes freed.
func (l *Log) Expire(before, committed int64) (freed int64) {
	kept, n := l.size, 0
	for n < len(l.batches) && l.batches[n].MaxTimestamp < before && l.batches[n].last < committed {
		n++
	}
	l.drop(n)
	return kept - l.size
}

// DeleteBefore moves the log's start up to offset. It drops whole batches, so the start may lie
// inside the first remaining one.
func (l *Log) DeleteBefore(offset int64) (freed int64) {
	if offset <= l.start {
		return 0
	}
	before := l.size
	l.drop(l.find(offset))
	l.start = min(offset, l.next)
	l.epochs = dropEpochsBefore(l.epochs, l.start)
	return before - l.size
}

func (l *Log) drop(n int) {
	if n == 0 {
		return
	}
	for i := range n {
		l.size -= int64(len(l.batches[i].Raw)) + batchOverhead
	}
	clear(l.batches[:n]) // the array remains in use; it must not retain the batches
	l.batches = l.batches[n:]
	if len(l.batches) > 0 {
		l.start = max(l.start, l.batches[0].Base)
	} else {
		l.start = l.next
	}
	l.epochs = dropEpochsBefore(l.epochs, l.start)
}

// Truncate drops all batches from the one that holds offset on.
func (l *Log) Truncate(offset int64) (freed int64) {
	n := l.find(offset)
	if n == len(l.batches) {
		return 0
	}
	before := l.size
	first := l.batches[n]
	for _, b := range l.batches[n:] {
		l.size -= int64(len(b.Raw)) + batchOverhead
	}
	l.next, l.written = first.Base, first.position
	l.start = min(l.start, l.next)
	clear(l.batches[n:])
	l.batches = l.batches[:n:n] // readers of the old tail must not see it overwritten
	l.epochs = truncateEpochs(l.epochs, l.next)
	return before - l.size
}

// Reset empties the log and continues it at offset, for a follower whose log no longer overlaps
// its leader's.
func (l *Log) Reset(offset int64) (freed int64) {
	freed = l.size
	*l = Log{start: offset, next: offset}
	return freed
}

// LastEpoch returns the epoch of the last batch, -1 if there is none.
func (l *Log) LastEpoch() int32 {
	if len(l.epochs) == 0 {
		return -1
	}
	return l.epochs[len(l.epochs)-1].Epoch
}

// EpochAt returns the leader epoch in which the record at offset was written, -1 if unknown.
func (l *Log) EpochAt(offset int64) int32 {
	i := l.find(offset)
	if i == len(l.batches) {
		return -1
	}
	return int32(binary.BigEndian.Uint32(l.batches[i].Raw[leaderEpochAt:]))
}

// find returns the index of the batch that holds offset, len(batches) for the end of the log.
func (l *Log) find(offset int64) int {
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].last >= offset })
}

// InRange reports whether a consumer may fetch from offset. The log's end is in range: a fetch
// waits there for new records.
func (l *Log) InRange(offset int64) bool { return l.start <= offset && offset <= l.next }

// Readable returns the number of bytes below limit that a fetch from offset could read. It takes
// two binary searches over positions, however much there is to read, because parked fetches call it
// at every append.
func (l *Log) Readable(offset, limit int64) int64 {
	from, to := l.find(offset), l.below(limit)
	if from >= to {
		return 0
	}
	end := l.written
	if to < len(l.batches) {
		end = l.batches[to].position
	}
	return end - l.batches[from].position
}

// below returns the number of batches entirely below limit.
func (l *Log) below(limit int64) int {
	if limit >= l.next {
		return len(l.batches)
	}
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].last >= limit })
}

// Read returns the batches below limit, from the one that holds offset on, as many as fit into room
// bytes; if atLeastOne is true, the first one even if it does not fit. The caller owns the list:
// Trim clears entries of batches.
func (l *Log) Read(offset, limit int64, maxBytes int, atLeastOne bool) (raw [][]byte, size int) {
	from, end := l.find(offset), l.below(limit)
	to := from
	for to < end {
		n := len(l.batches[to].Raw)
		if size+n > maxBytes && (to > from || !atLeastOne) {
			break
		}
		size += n
		to++
	}
	if to <= from {
		return nil, 0
	}
	raw = make([][]byte, to-from)
	for i := range raw {
		raw[i] = l.batches[from+i].Raw
	}
	return raw, size
}

// ByTime returns the first batch below limit with a record not older than ts. Producers choose
// timestamps, which are therefore unordered, so this is a linear scan.
func (l *Log) ByTime(ts, limit int64) (Batch, bool) {
	for _, b := range l.batches[:l.below(limit)] {
		if b.MaxTimestamp >= ts {
			return b, true
		}
	}
	return Batch{}, false
}

// Newest returns the batch below limit with the largest timestamp, the first one if several share
// it.
func (l *Log) Newest(limit int64) (newest Batch, ok bool) {
	for _, b := range l.batches[:l.below(limit)] {
		if !ok || b.MaxTimestamp > newest.MaxTimestamp {
			newest, ok = b, true
		}
	}
	return newest, ok
}
