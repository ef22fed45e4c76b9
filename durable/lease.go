package durable

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// leaseDue is called by the table of leases: when half of a lease has passed, and at its end if it
// was not extended. The end is computed by this worker's clock from before the claim was sent;
// from then on another worker may hold the lease, even if the engine has not said so.
func (w *Worker) leaseDue(_ store.Holder, r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.finished || w.stopped {
		return
	}
	now := w.now()
	if now >= r.deadline {
		if !r.expired && !r.ending && !r.cancelled {
			w.stats.Lost++
		}
		r.expired = true
		r.endContext(ErrLeaseLost)
		return
	}
	_ = w.leases.Set(r.lease.Holder, r, r.deadline-now)
	if r.cancelled || r.lost {
		return
	}
	s := r.shard
	s.extensions = append(s.extensions, r)
	if !s.extending {
		s.extending = true
		w.group.Go(func() { w.extend(s) })
	}
}

func (r *run) endContext(cause error) {
	if r.cancel != nil {
		r.cancel(cause)
	}
}

// extend extends leases of a shard until none is queued. The leases of one claim come due in quick
// succession, so extend first waits a moment to batch them; leases that come due while a request
// is in flight go into the next.
func (w *Worker) extend(s *shard) {
	w.sleep(min(linger, w.options.Lease/100))
	for failures := 0; ; {
		w.mu.Lock()
		runs := w.nextExtensionsLocked(s)
		w.mu.Unlock()
		if len(runs) == 0 {
			return
		}
		holders := make([]store.Holder, len(runs))
		for i, r := range runs {
			holders[i] = r.lease.Holder
		}
		sent := w.now()
		ctx, cancel := w.call()
		results, _, err := w.store.Extend(ctx, s.number, holders, w.options.Lease)
		cancel()
		if w.answered("extend", s.number, err) {
			failures = 0
			w.extended(runs, results, sent)
			continue
		}
		w.mu.Lock()
		s.extensions = append(runs, s.extensions...)
		w.mu.Unlock()
		failures++
		if !w.sleep(min(pause(failures), w.options.Lease/16)) { // several tries before the lease expires
			return
		}
	}
}

// nextExtensionsLocked removes the runs of the next request from the queue. If it returns none, the
// calling goroutine must end.
func (w *Worker) nextExtensionsLocked(s *shard) []*run {
	now := w.now()
	var runs []*run
	n := 0
	for ; n < len(s.extensions) && len(runs) < store.MaxItems; n++ {
		if r := s.extensions[n]; !r.finished && !r.lost && !r.cancelled && now < r.deadline && !w.stopped {
			runs = append(runs, r)
		}
	}
	s.extensions = append([]*run(nil), s.extensions[n:]...)
	s.extending = len(runs) > 0
	return runs
}

// extended applies the results of an extension.
func (w *Worker) extended(runs []*run, results []store.ExtendResult, sent time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for i, r := range runs {
		switch {
		case r.finished:
		case results[i] == store.Extended:
			r.deadline = sent + w.options.Lease
			_ = w.leases.Set(r.lease.Holder, r, r.deadline-w.options.Lease/2-now)
		case results[i] == store.ExtendCancelled:
			w.cancelLocked(r)
		case !r.ending: // else its outcome may be written, and only the reply lost
			r.lost = true
			if !r.expired {
				w.stats.Lost++
			}
			r.endContext(ErrLeaseLost)
		}
	}
}

// cancelLocked records that a run's timer was cancelled.
func (w *Worker) cancelLocked(r *run) {
	if r.finished || r.cancelled {
		return
	}
	r.cancelled = true
	w.stats.Cancelled++
	r.endContext(ErrCancelled)
}
