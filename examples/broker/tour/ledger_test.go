package tour

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The drive's verdict depends on the ledger, so the ledger must detect every fault.
func TestLedger(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		see  []uint64 // of 200 records sent
		want sums
	}{
		"all":            {nil, sums{seen: 200}},
		"one lost":       {[]uint64{199}, sums{seen: 199, lost: 1}},
		"one twice":      {[]uint64{200, 64}, sums{seen: 200, duplicated: 1}},
		"late":           {[]uint64{100, 100}, sums{seen: 200, outOfOrder: 1}},
		"never produced": {[]uint64{200, 1000}, sums{seen: 200, neverSent: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(map[string]int{"t": 1})
			p := l.partition("t", 0)
			for n := range uint64(200) {
				require.Equal(t, n, p.send())
				require.Zero(t, p.ackedAt(int64(n)))
				p.ack(n, int64(n), 5)
			}
			skip := uint64(200)
			if len(test.see) > 0 {
				skip = test.see[0]
			}
			for n := range uint64(200) {
				if n != skip {
					p.see(n, int64(n))
				}
			}
			for _, n := range test.see[min(1, len(test.see)):] {
				p.see(n, int64(n))
			}
			test.want.sent, test.want.acked = 200, 200
			require.Equal(t, test.want, l.sums())
			require.Zero(t, p.ackedAt(1000))
			require.Equal(t, test.want.lost, p.missing(p.seen))
		})
	}
}

// A record that its producer gave up on may be in the log, and then shifts the offsets of later
// records.
func TestLedgerOfFailedRecords(t *testing.T) {
	t.Parallel()
	l := newLedger(map[string]int{"t": 1})
	p := l.partition("t", 0)
	for range 5 {
		p.send()
	}
	p.ack(0, 0, 5)
	require.True(t, p.fail())  // 1, which is in the log
	require.False(t, p.fail()) // 2, which is not
	p.ack(3, 2, 7)
	require.Equal(t, sums{sent: 5, acked: 2, failed: 2, lost: 2}, l.sums())
	require.Equal(t, time.Duration(7), p.ackedAt(2))
	for offset, n := range []uint64{0, 1, 3} {
		p.see(n, int64(offset))
		p.checkOffset(n, int64(offset))
	}
	require.Equal(t, sums{sent: 5, acked: 2, failed: 2, seen: 3}, l.sums())
	require.Equal(t, uint64(2), p.missing(nil))
	p.see(4, 3) // before its acknowledgement
	p.ack(4, 4, 9)
	p.checkOffset(3, 3)
	p.checkOffset(7, 3)
	require.Equal(t, sums{sent: 5, acked: 3, failed: 2, seen: 4, misplaced: 2, neverSent: 1}, l.sums())
}

// Each forbidden result fails the summary.
func TestSummaryVerdict(t *testing.T) {
	t.Parallel()
	good := func() *summary { return &summary{Records: 1} }
	require.True(t, good().Checks().OK())
	for name, spoil := range map[string]func(*summary){
		"nothing happened": func(s *summary) { s.Records = 0 },
		"lost":             func(s *summary) { s.Lost = 1 },
		"duplicated":       func(s *summary) { s.Duplicated = 1 },
		"out of order":     func(s *summary) { s.OutOfOrder = 1 },
		"early":            func(s *summary) { s.Fetches.Early = 1 },
		"unanswered":       func(s *summary) { s.Fetches.Unanswered = 1 },
		"answered twice":   func(s *summary) { s.Fetches.Unanswered = -1 },
		"goroutines":       func(s *summary) { s.GoroutinesLeaked = 1 },
		"given up":         func(s *summary) { s.sums.sent, s.sums.failed = 1, 1 },
		"not reported":     func(s *summary) { s.sums.sent = 1 },
		"misplaced":        func(s *summary) { s.sums.misplaced = 1 },
		"from nowhere":     func(s *summary) { s.sums.neverSent = 1 },
		"cut off":          func(s *summary) { s.all.LostCommitted = 1 },
		"asleep":           func(s *summary) { s.missedWakeUps = 1 },
		"failed":           func(s *summary) { s.failed = 1 },
		"panics":           func(s *summary) { s.all.Panics = 1 },
		"no room":          func(s *summary) { s.all.Overload = 1 },
		"refused":          func(s *summary) { s.all.Refused = 1 },
		"parked":           func(s *summary) { s.all.Parked = 1 },
		"watched":          func(s *summary) { s.all.Watched = 1 },
		"a problem":        func(s *summary) { s.problems = []string{"polls slept"} },
	} {
		s := good()
		spoil(s)
		require.False(t, s.Checks().OK(), name)
	}
}
