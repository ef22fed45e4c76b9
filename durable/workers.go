package durable

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/histogram"
)

// WorkerInfo describes a worker of any process that shares the store, as of its last heartbeat.
// Workers send one every tenth of their lease, and at least once a second. If the worker runs a
// version of this package with another status format, all fields but Name, Live and Heartbeat are
// zero.
type WorkerInfo struct {
	Name      string
	Live      bool      // its heartbeat has not expired
	Heartbeat time.Time // the last one, by the engine's clock
	Since     time.Time // when the worker was made, by the engine's clock, within the delay of a heartbeat

	Slots     int // WorkerOptions.Concurrency
	Running   int // handlers
	Preferred int // shards that the worker is the first to claim from

	// These are counts since the worker was made; see WorkerStats.
	Done, Retried, Snoozed, Cancelled uint64
	DeadLettered                      uint64 // dead letters; includes WorkerStats.DeadLetteredLost

	Late histogram.Durations // see WorkerStats.Late; the histograms of several workers can be merged
}

// Workers returns the workers that share the store, by name: the live ones, and the last thousand
// of those that died within the last hour without leaving. It is one call to the engine. An engine
// in one process forgets the workers when it is closed.
func (t *Timers) Workers(ctx context.Context) ([]WorkerInfo, error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	workers, err := t.store.Workers(ctx)
	if err != nil {
		return nil, err
	}
	infos := make([]WorkerInfo, len(workers))
	for i, w := range workers {
		info, age, err := decodeStatus(w.Status)
		if err != nil {
			info = WorkerInfo{} // of another version
		}
		info.Name, info.Live, info.Heartbeat = w.Name, w.Live, timeOf(w.Heartbeat)
		if err == nil {
			info.Since = info.Heartbeat.Add(-age)
		}
		infos[i] = info
	}
	return infos, nil
}

// namesTimeout bounds the wait for the names of workers.
const namesTimeout = time.Second

// workerNames resolves the names of workers that run timers, with one call to the engine if any
// timer is leased.
type workerNames struct {
	timers *Timers
	byHash map[uint64]string // nil: not read yet
}

// of returns the name of the worker that runs a timer; "" if none does, or its name is unknown.
func (n *workerNames) of(ctx context.Context, r store.Record) string {
	if r.State != store.Leased {
		return ""
	}
	if n.byHash == nil {
		n.byHash = map[uint64]string{}
		ctx, cancel := context.WithTimeout(ctx, namesTimeout)
		defer cancel()
		workers, _ := n.timers.store.Workers(ctx) // on an error no name is known
		for _, w := range workers {
			n.byHash[store.HashOfWorker(w.Name)] = w.Name
		}
	}
	return n.byHash[r.Token.Worker()]
}

// statusVersion is the first byte of a status. It stays the same in later versions that only
// append to the status.
const statusVersion = 1

// status returns the worker's status for a heartbeat: the version, its age in milliseconds, the
// counts of a WorkerInfo, and the histogram as its sum, the number of classes that are not empty,
// and the class and count of each. Numbers are uvarints; the sum is a float64.
func (w *Worker) status() []byte {
	st := w.Stats()
	b := make([]byte, 1, 128)
	b[0] = statusVersion
	for _, n := range []uint64{
		uint64(w.now().Milliseconds()), uint64(w.options.Concurrency), uint64(st.Running), uint64(st.Preferred),
		st.Done, st.Retried, st.Snoozed, st.Cancelled, st.DeadLettered + st.DeadLetteredLost,
	} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(st.Late.Sum))
	filled := 0
	for _, n := range st.Late.Counts {
		if n > 0 {
			filled++
		}
	}
	b = binary.AppendUvarint(b, uint64(filled))
	for class, n := range st.Late.Counts {
		if n > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(class)), n)
		}
	}
	return b
}

var errStatus = errors.New("durable: the status of the worker is of another version")

// decodeStatus decodes a status. It accepts any bytes.
func decodeStatus(b []byte) (info WorkerInfo, age time.Duration, err error) {
	if len(b) == 0 || b[0] != statusVersion {
		return info, 0, errStatus
	}
	b = b[1:]
	bad := false
	number := func(most uint64) uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > most {
			bad, b = true, nil
			return 0
		}
		b = b[size:]
		return n
	}
	const most = math.MaxInt32 // of the fields that are an int
	age = time.Duration(number(uint64(store.MaxMillis))) * time.Millisecond
	info.Slots, info.Running, info.Preferred = int(number(most)), int(number(most)), int(number(most))
	for _, to := range []*uint64{&info.Done, &info.Retried, &info.Snoozed, &info.Cancelled, &info.DeadLettered} {
		*to = number(math.MaxUint64)
	}
	if len(b) < 8 {
		return info, 0, errStatus
	}
	late := &info.Late
	late.Sum = math.Float64frombits(binary.LittleEndian.Uint64(b))
	b = b[8:]
	for range number(uint64(len(late.Counts))) {
		class := number(uint64(len(late.Counts) - 1))
		n := number(math.MaxInt64 / uint64(len(late.Counts))) // no sum of them overflows
		late.Counts[class] = n
	}
	for _, n := range late.Counts {
		late.Count += n
	}
	if bad || !(late.Sum >= 0) || math.IsInf(late.Sum, 0) {
		return info, 0, errStatus
	}
	return info, age, nil
}
