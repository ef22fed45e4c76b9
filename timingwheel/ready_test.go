package timingwheel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ready queue matches a slice: buckets arrive and lose their last timer anywhere, and
// workers skip buckets that a shutdown has ended. Freed buckets are neither first nor last, nor
// more than half.
func TestReadyQueue(t *testing.T) {
	t.Parallel()
	var q readyQueue // without workers
	var want []bucketRef
	rnd := rand.New(rand.NewPCG(5, 5))
	for n := range uint64(50_000) {
		at := 0
		if len(want) > 0 {
			at = rnd.IntN(len(want))
		}
		switch coming := n/1000%2 == 0; {
		case len(want) == 0 || coming && rnd.IntN(3) > 0:
			want = append(want, bucketRef{seq: n})
			q.push(bucketRef{seq: n})
		case rnd.IntN(20) == 0:
			q.skip(want[at])
			if at == 0 {
				want = want[1:]
			}
		default:
			if k := rnd.IntN(4); k < 2 {
				at = k * (len(want) - 1)
			}
			q.drop(want[at])
			want = slices.Delete(want, at, at+1)
		}
		var live []bucketRef
		for k := range q.refs.Len() {
			r := q.refs.At(k)
			if _, freed := q.freed[r]; !freed {
				live = append(live, r)
			} else {
				require.True(t, k > 0 && k < q.refs.Len()-1)
			}
		}
		require.True(t, slices.Equal(want, live))
		require.Len(t, q.freed, q.refs.Len()-len(live))
		require.LessOrEqual(t, 2*len(q.freed), q.refs.Len())
	}
}
