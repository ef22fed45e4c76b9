package main

import "sort"

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

// log is one partition's records in memory: a run of batches without a gap,
// dropped from the front by retention. Its owner's lock guards it.
type log struct {
	batches []storedBatch
	start   int64 // log start offset: the first batch's base, or next when empty
	next    int64 // log end offset, and high watermark: there is one replica
	written int64 // bytes ever appended
	kept    int64 // bytes of batches, with overhead
}

// append takes ownership of raw.
func (l *log) append(raw []byte, records int32, maxTimestamp int64) (base int64) {
	base = l.next
	placeBatch(raw, base)
	l.batches = append(l.batches, storedBatch{
		base:         base,
		last:         base + int64(records) - 1,
		position:     l.written,
		maxTimestamp: maxTimestamp,
		raw:          raw,
	})
	l.next += int64(records)
	l.written += int64(len(raw))
	l.kept += int64(len(raw)) + batchOverhead
	return base
}

// trim drops batches from the front until no more than limit bytes are kept,
// but never the last batch: a log that forgets what was just acknowledged is no
// log. It returns how many bytes are free now.
func (l *log) trim(limit int64) (freed int64) {
	n := 0
	for n < len(l.batches)-1 && l.kept-freed > limit {
		freed += int64(len(l.batches[n].raw)) + batchOverhead
		n++
	}
	if n == 0 {
		return 0
	}
	clear(l.batches[:n]) // the array lives on; the batches must not
	l.batches = l.batches[n:]
	l.start = l.batches[0].base
	l.kept -= freed
	return freed
}

// find returns the index of the batch that holds offset, len(batches) for the
// end of the log.
func (l *log) find(offset int64) int {
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].last >= offset })
}

// inRange reports whether a consumer may stand at offset. The end is in range:
// that is where one waits.
func (l *log) inRange(offset int64) bool { return l.start <= offset && offset <= l.next }

// readable is how many bytes a fetch from offset could have. Positions make it
// a binary search, however much there is to read: parked fetches ask this at
// every append.
func (l *log) readable(offset int64) int64 {
	i := l.find(offset)
	if i == len(l.batches) {
		return 0
	}
	return l.written - l.batches[i].position
}

// read returns the batches from the one that holds offset on, as many as fit
// into limit bytes; the first one also when it does not, if atLeastOne says so.
// The list is the caller's own: trim clears entries of batches.
func (l *log) read(offset int64, limit int, atLeastOne bool) (raw [][]byte, size int) {
	from := l.find(offset)
	to := from
	for to < len(l.batches) {
		n := len(l.batches[to].raw)
		if size+n > limit && (to > from || !atLeastOne) {
			break
		}
		size += n
		to++
	}
	if to == from {
		return nil, 0
	}
	raw = make([][]byte, to-from)
	for i := range raw {
		raw[i] = l.batches[from+i].raw
	}
	return raw, size
}

// byTime returns the first batch with a record not older than ts. Producers
// choose timestamps, so they are in no order and this is a scan.
func (l *log) byTime(ts int64) (storedBatch, bool) {
	for _, b := range l.batches {
		if b.maxTimestamp >= ts {
			return b, true
		}
	}
	return storedBatch{}, false
}

// newest returns the batch with the largest timestamp, the first of equals.
func (l *log) newest() (newest storedBatch, ok bool) {
	for _, b := range l.batches {
		if !ok || b.maxTimestamp > newest.maxTimestamp {
			newest, ok = b, true
		}
	}
	return newest, ok
}
