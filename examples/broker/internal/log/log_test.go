package log

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// naive models the log as a list of batches; every operation scans it.
type naive struct {
	batches     []naiveBatch
	ever        []naiveBatch // including deleted batches, but not truncated ones
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
		var l Log
		var n naive
		epoch := int32(0)
		for range 300 {
			switch rng.IntN(8) {
			case 0, 1, 2:
				size, count, ts := batchHeader+rng.IntN(100), 1+rng.Int32N(5), rng.Int64N(50)
				epoch += rng.Int32N(8) / 7
				require.Equal(t, n.next, l.Append(make([]byte, size), epoch, count, ts))
				n.batches = append(n.batches, naiveBatch{n.next, n.next + int64(count) - 1, ts, epoch, size})
				n.ever = append(n.ever, n.batches[len(n.batches)-1])
				n.next += int64(count)
			case 3:
				limit, committed := rng.Int64N(5000), rng.Int64N(n.next+1)
				kept := l.size
				freed := l.Trim(limit, committed)
				require.Equal(t, kept-freed, l.size)
				for len(n.batches) > 1 && n.sum() > limit && n.batches[0].last < committed {
					n.dropFirst()
				}
			case 4:
				offset := rng.Int64N(n.next + 2)
				if rng.IntN(3) > 0 { // mostly near the start, to keep some batches
					offset = n.start + rng.Int64N(4)
				}
				kept := l.size
				require.Equal(t, kept-l.DeleteBefore(offset), l.size)
				for len(n.batches) > 0 && n.batches[0].last < offset {
					n.dropFirst()
				}
				n.start = max(n.start, min(offset, n.next))
			case 5:
				offset := max(n.start, n.next-rng.Int64N(6))
				kept := l.size
				require.Equal(t, kept-l.Truncate(offset), l.size)
				for len(n.batches) > 0 && n.batches[len(n.batches)-1].last >= offset {
					n.next = n.batches[len(n.batches)-1].base
					n.batches, n.ever = n.batches[:len(n.batches)-1], n.ever[:len(n.ever)-1]
				}
				n.start = min(n.start, n.next)
			default:
				checkRead(t, rng, &l, &n)
			}
			require.NoError(t, l.Verify())
			require.Equal(t, []int64{n.start, n.next}, []int64{l.start, l.next})
			asked := rng.Int32N(epoch + 2)
			found, end := n.epochEnd(asked)
			if gotFound, gotEnd := l.EpochEnd(asked); gotFound == -1 {
				require.LessOrEqual(t, end, n.start, "epoch %d, of which there are records", asked)
			} else {
				require.Equal(t, []int64{int64(found), end}, []int64{int64(gotFound), gotEnd}, "epoch %d", asked)
			}
		}
	}
}

// checkRead compares all reading methods.
func checkRead(t *testing.T, rng *rand.Rand, l *Log, n *naive) {
	offset, maxBytes, one := rng.Int64N(n.next+2), rng.IntN(600), rng.IntN(2) == 0
	visible := n.next // like a high watermark, at the end of a batch
	if len(n.batches) > 0 && rng.IntN(2) == 0 {
		visible = n.batches[rng.IntN(len(n.batches))].base
	}
	require.Equal(t, n.start <= offset && offset <= n.next, l.InRange(offset))
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
		if full = full || size+b.size > maxBytes && (count > 0 || !one); !full {
			size += b.size
			count++
		}
	}
	require.Equal(t, int64(readable), l.Readable(offset, visible))
	got, gotSize := l.Read(offset, visible, maxBytes, one)
	require.Len(t, got, count)
	require.Equal(t, size, gotSize)
	found, ok := l.ByTime(ts, visible)
	require.Equal(t, byTime.base >= 0, ok)
	if ok {
		require.Equal(t, byTime.base, found.Base)
		require.Equal(t, byTime.epoch, l.EpochAt(found.Base))
	}
	if found, ok := l.Newest(visible); ok {
		require.Equal(t, newest.base, found.Base)
	} else {
		require.Equal(t, int64(-1), newest.ts)
	}
}
