package log

import (
	"slices"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Leader epochs tell two replicas where their logs diverge: each batch carries the epoch in which
// it was written, and an epoch has one leader, so within an epoch two logs agree up to the end of
// the shorter one. (KIP-101; with KIP-595 the leader returns the divergence point in its response
// to a follower's fetch.)

// EpochStart is the offset of an epoch's first batch.
type EpochStart struct {
	Epoch int32
	Start int64
}

// addEpoch adds an epoch if the batch at base is its first.
func addEpoch(epochs []EpochStart, epoch int32, base int64) []EpochStart {
	if n := len(epochs); n > 0 && epochs[n-1].Epoch >= epoch {
		return epochs
	}
	return append(epochs, EpochStart{epoch, base})
}

// dropEpochsBefore removes the epochs that end before the log starts.
func dropEpochsBefore(epochs []EpochStart, logStart int64) []EpochStart {
	n := 0
	for n+1 < len(epochs) && epochs[n+1].Start <= logStart {
		n++
	}
	return slices.Delete(epochs, 0, n)
}

// truncateEpochs removes the epochs that begin at or after the log's end.
func truncateEpochs(epochs []EpochStart, logEnd int64) []EpochStart {
	n := sort.Search(len(epochs), func(i int) bool { return epochs[i].Start >= logEnd })
	return epochs[:n:n]
}

// EpochEnd returns the largest epoch in the log that is not above the given one, and its end
// offset; -1 and -1 if there is none.
func (l *Log) EpochEnd(epoch int32) (found int32, end int64) {
	n := sort.Search(len(l.epochs), func(i int) bool { return l.epochs[i].Epoch > epoch })
	if n == 0 {
		return -1, -1
	}
	if n == len(l.epochs) {
		return l.epochs[n-1].Epoch, l.next
	}
	return l.epochs[n-1].Epoch, l.epochs[n].Start
}

// StartOf returns the offset of an epoch's first batch if the epoch is the last one, else the log's
// end.
func (l *Log) StartOf(epoch int32) int64 {
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch == epoch {
		return l.epochs[n-1].Start
	}
	return l.next
}

// CheckEpoch compares the epoch that a client or follower sent with the leader's own. Clients that
// do not know the epoch send -1.
func CheckEpoch(currentEpoch, leaderEpoch int32) *kerr.Error {
	switch {
	case currentEpoch < 0 || currentEpoch == leaderEpoch:
		return nil
	case currentEpoch < leaderEpoch:
		return kerr.FencedLeaderEpoch
	default:
		return kerr.UnknownLeaderEpoch
	}
}
