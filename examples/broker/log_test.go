package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// verify checks what must hold of a log between any two calls.
func (l *log) verify(t require.TestingT) {
	kept := int64(0)
	for i, b := range l.batches {
		require.GreaterOrEqual(t, b.last, b.base)
		if i > 0 {
			before := l.batches[i-1]
			require.Equal(t, before.last+1, b.base, "batch %d starts where the one before ended", i)
			require.Equal(t, before.position+int64(len(before.raw)), b.position)
		}
		kept += int64(len(b.raw)) + batchOverhead
	}
	require.Equal(t, l.kept, kept)
	if n := len(l.batches); n > 0 {
		last := l.batches[n-1]
		require.Equal(t, l.next, last.last+1)
		require.Equal(t, l.written, last.position+int64(len(last.raw)))
		require.GreaterOrEqual(t, l.start, l.batches[0].base)
		require.LessOrEqual(t, l.start, l.batches[0].last, "the start is in the first batch")
	} else {
		require.Equal(t, l.next, l.start)
	}
	for i, e := range l.epochs {
		require.Less(t, e.start, l.next)
		if i > 0 {
			require.Greater(t, e.epoch, l.epochs[i-1].epoch)
			require.Greater(t, e.start, l.epochs[i-1].start)
			require.GreaterOrEqual(t, e.start, l.start, "an epoch that ended before the log starts")
		}
	}
}

// naive is the log as a list of its batches, and does everything by a scan.
type naive struct {
	batches     []naiveBatch
	ever        []naiveBatch // with those that were deleted, but not those that were truncated
	start, next int64
}

type naiveBatch struct {
	base, last, ts int64
	epoch          int32
	size           int
}

func (n *naive) sum() (sum int64) {
	for _, b := range n.batches {
		sum += int64(b.size) + batchOverhead
	}
	return sum
}

// dropFirst forgets the first batch.
func (n *naive) dropFirst() {
	n.batches = n.batches[1:]
	if len(n.batches) == 0 {
		n.start = n.next
	} else {
		n.start = max(n.start, n.batches[0].base)
	}
}

func (n *naive) epochEnd(epoch int32) (found int32, end int64) {
	found, end = -1, -1
	for _, b := range n.ever {
		if b.epoch <= epoch {
			found, end = b.epoch, b.last+1
		}
	}
	return found, end
}

func TestLogAgainstNaive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var l log
		var n naive
		epoch := int32(0)
		for range 300 {
			switch rng.IntN(8) {
			case 0, 1, 2:
				size, count, ts := batchHeader+rng.IntN(100), 1+rng.Int32N(5), rng.Int64N(50)
				epoch += rng.Int32N(8) / 7
				require.Equal(t, n.next, l.append(make([]byte, size), epoch, count, ts))
				n.batches = append(n.batches, naiveBatch{n.next, n.next + int64(count) - 1, ts, epoch, size})
				n.ever = append(n.ever, n.batches[len(n.batches)-1])
				n.next += int64(count)
			case 3:
				limit, committed := rng.Int64N(5000), rng.Int64N(n.next+1)
				kept := l.kept
				freed := l.trim(limit, committed)
				require.Equal(t, kept-freed, l.kept)
				for len(n.batches) > 1 && n.sum() > limit && n.batches[0].last < committed {
					n.dropFirst()
				}
			case 4:
				offset := rng.Int64N(n.next + 2)
				if rng.IntN(3) > 0 { // mostly near the start, or little would be left
					offset = n.start + rng.Int64N(4)
				}
				kept := l.kept
				require.Equal(t, kept-l.deleteBefore(offset), l.kept)
				for len(n.batches) > 0 && n.batches[0].last < offset {
					n.dropFirst()
				}
				n.start = max(n.start, min(offset, n.next))
			case 5:
				offset := max(n.start, n.next-rng.Int64N(6))
				kept := l.kept
				require.Equal(t, kept-l.truncate(offset), l.kept)
				for len(n.batches) > 0 && n.batches[len(n.batches)-1].last >= offset {
					n.next = n.batches[len(n.batches)-1].base
					n.batches, n.ever = n.batches[:len(n.batches)-1], n.ever[:len(n.ever)-1]
				}
				n.start = min(n.start, n.next)
			default:
				checkRead(t, rng, &l, &n)
			}
			l.verify(t)
			require.Equal(t, []int64{n.start, n.next}, []int64{l.start, l.next})
			asked := rng.Int32N(epoch + 2)
			found, end := n.epochEnd(asked)
			if gotFound, gotEnd := l.epochEnd(asked); gotFound == -1 {
				require.LessOrEqual(t, end, n.start, "epoch %d, of which there are records", asked)
			} else {
				require.Equal(t, []int64{int64(found), end}, []int64{int64(gotFound), gotEnd}, "epoch %d", asked)
			}
		}
	}
}

// checkRead compares all that reads.
func checkRead(t *testing.T, rng *rand.Rand, l *log, n *naive) {
	offset, room, one := rng.Int64N(n.next+2), rng.IntN(600), rng.IntN(2) == 0
	visible := n.next // as a high watermark, at the end of a batch
	if len(n.batches) > 0 && rng.IntN(2) == 0 {
		visible = n.batches[rng.IntN(len(n.batches))].base
	}
	require.Equal(t, n.start <= offset && offset <= n.next, l.inRange(offset))
	ts := rng.Int64N(60)
	readable, size, count, full := 0, 0, 0, false
	newest, byTime := naiveBatch{ts: -1}, naiveBatch{base: -1}
	for _, b := range n.batches {
		if b.last >= visible {
			break
		}
		if b.ts > newest.ts {
			newest = b
		}
		if b.ts >= ts && byTime.base < 0 {
			byTime = b
		}
		if b.last < offset {
			continue
		}
		readable += b.size
		if full = full || size+b.size > room && (count > 0 || !one); !full {
			size += b.size
			count++
		}
	}
	require.Equal(t, int64(readable), l.readable(offset, visible))
	got, gotSize := l.read(offset, visible, room, one)
	require.Len(t, got, count)
	require.Equal(t, size, gotSize)
	found, ok := l.byTime(ts, visible)
	require.Equal(t, byTime.base >= 0, ok)
	if ok {
		require.Equal(t, byTime.base, found.base)
		require.Equal(t, byTime.epoch, l.epochAt(found.base))
	}
	if found, ok := l.newest(visible); ok {
		require.Equal(t, newest.base, found.base)
	} else {
		require.Equal(t, int64(-1), newest.ts)
	}
}

// All logs together stay below their limit, and what was just written stays.
func TestLogSumIsBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxLogSum = 50_000 })
	topics := []*topic{makeTopic(t, s, "a", 3), makeTopic(t, s, "b", 3)}
	c := dial(t, s)
	rng := rand.New(rand.NewPCG(7, 7))
	for range 500 {
		topic, p := topics[rng.IntN(2)], rng.Int32N(3)
		got := c.produce(topic, p, batchOf([]string{string(make([]byte, rng.IntN(1000)))}))
		require.Zero(t, got.ErrorCode)
		// The answer comes before the eviction; the next request after it.
		c.call(listRequest(5, topic, p, latestOffset))
		require.LessOrEqual(t, s.partitions.kept.Load(), int64(50_000))
	}
	sum := int64(0)
	for _, topic := range topics {
		for i := range topic.partitions {
			p := replica(s, topic, int32(i))
			p.log.verify(t)
			require.NotEmpty(t, p.log.batches)
			sum += p.log.kept
		}
	}
	require.Equal(t, sum, s.partitions.kept.Load())
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	last := -1
	for ns := uint64(0); ns < 1<<40; ns += 1 + ns/50 {
		b := bucketOf(ns)
		require.GreaterOrEqual(t, b, last)
		require.LessOrEqual(t, ns, bucketTop(b))
		if b > 0 {
			require.Greater(t, ns, bucketTop(b-1))
		}
		last = b
	}
	require.Less(t, bucketOf(1<<63), 64*8)
	var h histogram
	for i := range time.Duration(1000) {
		h.add(i + 1)
	}
	s := h.snapshot()
	require.InEpsilon(t, 500, quantile(&s, 0.5).Nanoseconds(), 0.125)
	require.InEpsilon(t, 990, quantile(&s, 0.99).Nanoseconds(), 0.125)
	require.Zero(t, quantile(new([64 * 8]uint64), 0.5))
}
