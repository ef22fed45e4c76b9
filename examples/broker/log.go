package main

import (
	"encoding/binary"
	"sort"
)

// storedBatch is one record batch as it will go out: its bytes, with the offset
// in place, never change again. So a fetch may copy them, and ListOffsets may
// read them, with no lock held.
type storedBatch struct {
	base, last   int64 // offsets of its first and last record
	position     int64 // bytes ever appended before it
	maxTimestamp int64
	raw          []byte
}

// batchOverhead is charged for each batch on top of its bytes, or retention by
// bytes would let a million one-record batches cost far more than it says.
const batchOverhead = 96

// log is one replica's records in memory: a run of batches without a gap, dropped
// from the front by retention and, at a follower, from the end where it differs
// from its leader's. Its owner's lock guards it.
type log struct {
	batches []storedBatch
	epochs  []epochStart // of the batches, ascending; see epoch.go
	start   int64        // log start offset: in the first batch, or next when empty
	next    int64        // log end offset
	written int64        // bytes ever appended, and not truncated since
	kept    int64        // bytes of batches, with overhead
}

// append takes ownership of raw, a leader's new batch.
func (l *log) append(raw []byte, epoch, records int32, maxTimestamp int64) (base int64) {
	base = l.next
	placeBatch(raw, base, epoch)
	l.add(storedBatch{base: base, last: base + int64(records) - 1, maxTimestamp: maxTimestamp, raw: raw}, epoch)
	return base
}

// add stores a batch that has its place already: its base is the log's end.
func (l *log) add(b storedBatch, epoch int32) {
	b.position = l.written
	l.epochs = noteEpoch(l.epochs, epoch, b.base)
	l.batches = append(l.batches, b)
	l.next = b.last + 1
	l.written += int64(len(b.raw))
	l.kept += int64(len(b.raw)) + batchOverhead
}

// trim drops batches from the front until no more than limit bytes are kept,
// but never the last batch (a log that forgets what was just acknowledged is no
// log) and none that reaches beyond committed: a replica may still need it. It
// returns how many bytes are free now.
func (l *log) trim(limit, committed int64) (freed int64) {
	n := 0
	for n < len(l.batches)-1 && l.kept-freed > limit && l.batches[n].last < committed {
		freed += int64(len(l.batches[n].raw)) + batchOverhead
		n++
	}
	l.drop(n)
	return freed
}

// deleteBefore moves the log's start up to offset. Whole batches go; the start
// may lie inside the first one that stays.
func (l *log) deleteBefore(offset int64) (freed int64) {
	if offset <= l.start {
		return 0
	}
	before := l.kept
	l.drop(l.find(offset))
	l.start = min(offset, l.next)
	l.epochs = dropEpochs(l.epochs, l.start)
	return before - l.kept
}

// drop forgets the first n batches.
func (l *log) drop(n int) {
	if n == 0 {
		return
	}
	for i := range n {
		l.kept -= int64(len(l.batches[i].raw)) + batchOverhead
	}
	clear(l.batches[:n]) // the array lives on; the batches must not
	l.batches = l.batches[n:]
	if len(l.batches) > 0 {
		l.start = max(l.start, l.batches[0].base)
	} else {
		l.start = l.next
	}
	l.epochs = dropEpochs(l.epochs, l.start)
}

// truncate drops what lies at offset and beyond, with the whole of a batch that
// holds offset.
func (l *log) truncate(offset int64) (freed int64) {
	n := l.find(offset)
	if n == len(l.batches) {
		return 0
	}
	before := l.kept
	first := l.batches[n]
	for _, b := range l.batches[n:] {
		l.kept -= int64(len(b.raw)) + batchOverhead
	}
	l.next, l.written = first.base, first.position
	l.start = min(l.start, l.next)
	clear(l.batches[n:])
	l.batches = l.batches[:n:n] // who reads the old tail must not see it written over
	l.epochs = cutEpochs(l.epochs, l.next)
	return before - l.kept
}

// restart empties the log and has it go on at offset: a follower that its leader
// has nothing in common with any more.
func (l *log) restart(offset int64) (freed int64) {
	freed = l.kept
	*l = log{start: offset, next: offset}
	return freed
}

// lastEpoch is that of the last batch, -1 when there is none.
func (l *log) lastEpoch() int32 {
	if len(l.epochs) == 0 {
		return -1
	}
	return l.epochs[len(l.epochs)-1].epoch
}

// epochAt is the leader epoch under which the record at offset was written, -1
// if that is not known.
func (l *log) epochAt(offset int64) int32 {
	i := l.find(offset)
	if i == len(l.batches) {
		return -1
	}
	return int32(binary.BigEndian.Uint32(l.batches[i].raw[leaderEpochAt:]))
}

// find returns the index of the batch that holds offset, len(batches) for the
// end of the log.
func (l *log) find(offset int64) int {
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].last >= offset })
}

// inRange reports whether a consumer may stand at offset. The end is in range:
// that is where one waits.
func (l *log) inRange(offset int64) bool { return l.start <= offset && offset <= l.next }

// readable is how many bytes a fetch from offset could have of what lies below
// limit. Positions make it two binary searches, however much there is to read:
// parked fetches ask this at every append.
func (l *log) readable(offset, limit int64) int64 {
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

// below is how many batches lie below limit, whole.
func (l *log) below(limit int64) int {
	if limit >= l.next {
		return len(l.batches)
	}
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].last >= limit })
}

// read returns the batches from the one that holds offset on and below limit, as
// many as fit into room bytes, and the first one also when it does not if atLeastOne
// is true. The list is the caller's own: trim clears entries of batches.
func (l *log) read(offset, limit int64, room int, atLeastOne bool) (raw [][]byte, size int) {
	from, end := l.find(offset), l.below(limit)
	to := from
	for to < end {
		n := len(l.batches[to].raw)
		if size+n > room && (to > from || !atLeastOne) {
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
		raw[i] = l.batches[from+i].raw
	}
	return raw, size
}

// byTime returns the first batch below limit with a record not older than ts.
// Producers choose timestamps, so they are in no order and this is a scan.
func (l *log) byTime(ts, limit int64) (storedBatch, bool) {
	for _, b := range l.batches[:l.below(limit)] {
		if b.maxTimestamp >= ts {
			return b, true
		}
	}
	return storedBatch{}, false
}

// newest returns the batch below limit with the largest timestamp, the first of
// equals.
func (l *log) newest(limit int64) (newest storedBatch, ok bool) {
	for _, b := range l.batches[:l.below(limit)] {
		if !ok || b.maxTimestamp > newest.maxTimestamp {
			newest, ok = b, true
		}
	}
	return newest, ok
}
