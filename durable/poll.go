package durable

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// pollSoon makes pollLoop poll the preferred shards early.
func (w *Worker) pollSoon() {
	select {
	case w.pollNow <- struct{}{}:
	default:
	}
}

const (
	// pollEvery is how often a worker polls the horizons of its preferred shards, because events
	// can be lost unnoticed.
	pollEvery = time.Second
	// pollPause is the shortest time between two polls, however many triggers there are.
	pollPause = 50 * time.Millisecond
)

func (w *Worker) pollLoop() {
	every := time.NewTicker(pollEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-w.pollNow:
		case <-w.callCtx.Done():
			return
		}
		if w.poll() && !w.sleep(pollPause) {
			return
		}
	}
}

// poll reads the horizons of the preferred shards, in one call. It reports whether there are any.
//
// Shards can be on different servers. Each shard that could not be read is then polled by a
// goroutine of its own until it answers, so that the next poll of the others need not wait for it.
func (w *Worker) poll() bool {
	w.mu.Lock()
	var numbers []int
	for i := range w.shards {
		if s := &w.shards[i]; s.preferred && !s.unresponsive {
			numbers = append(numbers, i)
		}
	}
	w.mu.Unlock()
	if len(numbers) == 0 {
		return false
	}
	missing, err := w.pollShards(numbers)
	if len(missing) == len(numbers) {
		w.answered("poll", -1, err)
		return true // the next poll is at most a second away
	}
	w.answered("poll", -1, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, number := range missing {
		s := &w.shards[number]
		s.unresponsive = true
		w.group.Go(func() { w.pollUnresponsive(s, err) })
	}
	return true
}

// pollUnresponsive polls the horizon of one shard, which failed with err, until it answers.
func (w *Worker) pollUnresponsive(s *shard, err error) {
	for failures := 1; ; failures++ {
		w.answered("poll", s.number, err)
		if !w.sleep(pause(failures)) {
			return
		}
		var missing []int
		if missing, err = w.pollShards([]int{s.number}); len(missing) == 0 {
			break
		}
	}
	w.answered("poll", s.number, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	s.unresponsive = false
}

// pollShards reads the horizons of shards in one call, and acts on them. It returns the shards that
// could not be read, and the error.
func (w *Worker) pollShards(numbers []int) (missing []int, err error) {
	sent := w.now()
	ctx, cancel := w.call()
	horizons, err := w.store.Horizons(ctx, numbers)
	cancel()
	arrived := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, number := range numbers {
		if err != nil && (i >= len(horizons) || horizons[i].Now == 0) {
			missing = append(missing, number)
			continue
		}
		s := &w.shards[number]
		s.horizon.reply(horizons[i], sent, arrived)
		s.helpIfOverdue(horizons[i], arrived)
		w.scheduleClaimLocked(s)
	}
	w.dispatchLocked()
	return missing, err
}

// Helping without an announcement. A worker without free slots announces that. But the
// announcement can be lost, an engine may have none, and a worker may send heartbeats and yet not
// reach the server of a shard. So in each turn of turnEvery one other worker, in rotation, checks
// each shard, and if something there has been due for more than helpAfter it claims as if it had
// been asked.
//
// The rotation costs one check of each shard per turnEvery, for any number of workers. A worker
// that has no free slot during its whole turn skips it, and its shards wait for the next turn: so
// of n workers, one with free slots checks each shard at least every (n-1) turns.
const (
	turnEvery = 5 * time.Second
	helpAfter = 2 * time.Second
	// watchFor is how long a worker polls a shard every pollEvery after it had to help there,
	// because the timers that come due next are likely to need help too.
	watchFor = 10 * time.Second
)

func (w *Worker) helpLoop() {
	every := time.NewTicker(pollEvery)
	defer every.Stop()
	last := int64(-1)
	for {
		select {
		case <-every.C:
		case <-w.callCtx.Done():
			return
		}
		// The machine's clock decides which worker's turn it is. If clocks differ, some turns
		// coincide and others have no worker; each worker still checks each shard equally often.
		turn := time.Now().UnixMilli() / turnEvery.Milliseconds()
		numbers, ok := w.others(turn, turn != last)
		if ok {
			last = turn
		}
		if len(numbers) > 0 {
			_, _ = w.pollShards(numbers) // the preferred worker's poll reports errors
		}
	}
}

// others returns the shards of other workers to check now: the ones that it watches, and, when a
// turn begins, the shards of that turn. It reports whether there are free slots to help.
func (w *Worker) others(turn int64, begins bool) (numbers []int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing || w.capacityLocked() <= 0 {
		return nil, false
	}
	now, n := w.now(), len(w.members)
	if n < 2 {
		return nil, true
	}
	for i := range w.shards {
		s := &w.shards[i]
		if s.preferred || s.unresponsive {
			continue
		}
		// All members but the preferred one, in order of their names.
		mine := int((turn + int64(i)) % int64(n-1))
		if mine >= s.first {
			mine++
		}
		if s.watchUntil > now || begins && w.members[mine] == w.name {
			numbers = append(numbers, i)
		}
	}
	return numbers, true
}

// helpIfOverdue makes this worker claim from a shard for which another one is preferred, if
// something there has been due for more than helpAfter.
func (s *shard) helpIfOverdue(h store.Horizon, now time.Duration) {
	next := earlier(h.NextDue, h.NextLeaseEnd)
	if !s.preferred && next != 0 && span(h.Now, next) > helpAfter {
		s.helpUntil, s.watchUntil = now+helpFor, now+watchFor
	}
}
