package log

import (
	"slices"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Leader epochs tell two replicas where their logs part: each batch carries the
// epoch it was written under, an epoch has one leader, and so what two logs have
// of one epoch agrees up to where the shorter one ends. (KIP-101; KIP-595 has
// the leader answer a follower's fetch with that place.)

// EpochStart is where the batches of an epoch begin.
type EpochStart struct {
	Epoch int32
	Start int64
}

// noteEpoch adds an epoch's first batch, if it is that.
func noteEpoch(epochs []EpochStart, epoch int32, base int64) []EpochStart {
	if n := len(epochs); n > 0 && epochs[n-1].Epoch >= epoch {
		return epochs
	}
	return append(epochs, EpochStart{epoch, base})
}

// dropEpochs forgets those that end before the log starts.
func dropEpochs(epochs []EpochStart, logStart int64) []EpochStart {
	n := 0
	for n+1 < len(epochs) && epochs[n+1].Start <= logStart {
		n++
	}
	return slices.Delete(epochs, 0, n)
}

// cutEpochs forgets those that begin where the log now ends, or later.
func cutEpochs(epochs []EpochStart, logEnd int64) []EpochStart {
	n := sort.Search(len(epochs), func(i int) bool { return epochs[i].Start >= logEnd })
	return epochs[:n:n]
}

// EpochEnd answers for an epoch: the largest one here that is not above it, and
// where that ends. -1 and -1 when there is none.
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

// StartOf returns where the batches of an epoch begin, if it is the last; otherwise
// the log's end.
func (l *Log) StartOf(epoch int32) int64 {
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch == epoch {
		return l.epochs[n-1].Start
	}
	return l.next
}

// CheckEpoch compares the epoch that a client or follower believes in with the
// leader's own. Clients that do not know say -1.
func CheckEpoch(believed, epoch int32) *kerr.Error {
	switch {
	case believed < 0 || believed == epoch:
		return nil
	case believed < epoch:
		return kerr.FencedLeaderEpoch
	default:
		return kerr.UnknownLeaderEpoch
	}
}
