package api

import (
	"fmt"
	"net/http"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

func key(r *http.Request) (string, error) {
	k := r.PathValue("key")
	return k, checkKey(k)
}

// put schedules one timer. It replies 201 if the key was new, 200 if the timer replaces or succeeds
// another, and 409 if if_absent refuses it.
func (s *Server) put(r *http.Request) (int, any, error) {
	var t wire.Timer
	if err := decode(r, &t); err != nil {
		return 0, nil, err
	}
	path, err := key(r)
	if err != nil {
		return 0, nil, err
	}
	if t.Key != "" && t.Key != path {
		return 0, nil, invalid("key", quote(t.Key), "absent, or as in the path")
	}
	t.Key = path
	timer, err := timerOf(&t)
	if err != nil {
		return 0, nil, err
	}
	receipt, err := s.o.Timers.Schedule(r.Context(), timer)
	if err != nil {
		return 0, nil, err
	}
	return statusOf(receipt.Kind), resultOf(t.Key, receipt), nil
}

func statusOf(k durable.ReceiptKind) int {
	switch k {
	case durable.Created:
		return http.StatusCreated
	case durable.Exists:
		return http.StatusConflict
	case durable.Refused:
		return http.StatusInsufficientStorage
	}
	return http.StatusOK
}

func resultOf(key string, r durable.Receipt) wire.Result {
	result := wire.Result{Key: key, Result: r.Kind.String()}
	if r.Due != 0 {
		result.Due = formatTime(r.Due.Time())
	}
	return result
}

// maxBatch bounds the timers of a batch.
const maxBatch = 500

// batch schedules up to maxBatch timers, each independently. It replies 200 if each timer has
// a result, which may be that the store was full. Otherwise the results come with the error, and a
// timer without a result is "unanswered".
func (s *Server) batch(r *http.Request) (int, any, error) {
	timers, err := readBatch(r)
	if err != nil {
		return 0, nil, err
	}
	receipts, err := s.o.Timers.ScheduleMany(r.Context(), timers)
	if len(receipts) < len(timers) {
		return 0, nil, err
	}
	results, answered := make([]wire.Result, len(receipts)), true
	for i, receipt := range receipts {
		results[i] = resultOf(timers[i].Key, receipt)
		if receipt.Kind == 0 {
			results[i].Result, answered = "unanswered", false
		}
	}
	if err != nil {
		parts := []error{err}
		if joined, ok := err.(interface{ Unwrap() []error }); ok { // one error per kind of failure
			parts = joined.Unwrap()
		}
		if e := storeError(err, parts...); e.Code != "full" || !answered {
			return 0, results, e
		}
	}
	return http.StatusOK, wire.Results{Timers: results}, nil
}

// readBatch reads timers one by one, and stops at the first that is out of range or beyond the
// maximum number.
func readBatch(r *http.Request) (timers []durable.Timer, err error) {
	must := fmt.Sprintf("1 to %d", maxBatch)
	var batch struct {
		Timers func(int, *wire.Timer) error `json:"timers"`
	}
	batch.Timers = func(i int, t *wire.Timer) error {
		if i == maxBatch {
			return invalid("timers", fmt.Sprintf("more than %d of them", i), must)
		}
		timer, err := timerOf(t)
		timers = append(timers, timer)
		return within(fmt.Sprintf("timers[%d].", i), err)
	}
	err = decode(r, &batch)
	if err == nil && len(timers) == 0 {
		err = invalid("timers", "0 of them", must)
	}
	return timers, err
}

// get shows one timer.
func (s *Server) get(r *http.Request) (int, any, error) {
	k, err := key(r)
	if err != nil {
		return 0, nil, err
	}
	timer, err := s.o.Timers.Get(r.Context(), k)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, infoOf(timer), nil
}

// reschedule moves a waiting timer. It replies 200, 409 if the timer is running, or 404.
func (s *Server) reschedule(r *http.Request) (int, any, error) {
	var when wire.When
	if err := decode(r, &when); err != nil {
		return 0, nil, err
	}
	k, err := key(r)
	if err != nil {
		return 0, nil, err
	}
	at, after, err := timesOf(when)
	if err != nil {
		return 0, nil, err
	}
	var moved durable.MoveResult
	if at.IsZero() {
		moved, err = s.o.Timers.Reset(r.Context(), k, after)
	} else {
		moved, err = s.o.Timers.ResetAt(r.Context(), k, at)
	}
	if err != nil {
		return 0, nil, err
	}
	status := map[durable.MoveResult]int{
		durable.Moved: http.StatusOK, durable.MoveRunning: http.StatusConflict, durable.MoveAbsent: http.StatusNotFound,
	}[moved]
	return status, wire.Result{Key: durable.KeyText(k), Result: moved.String()}, nil
}

// cancel replies 200 if no callback will begin, 202 if one is running, and 404 if there is no such
// timer or it is a dead letter.
func (s *Server) cancel(r *http.Request) (int, any, error) {
	k, err := key(r)
	if err != nil {
		return 0, nil, err
	}
	cancelled, err := s.o.Timers.Cancel(r.Context(), k)
	if err != nil {
		return 0, nil, err
	}
	status := map[durable.CancelResult]int{
		durable.Cancelled: http.StatusOK, durable.Running: http.StatusAccepted, durable.NotFound: http.StatusNotFound,
	}[cancelled]
	return status, wire.Result{Key: durable.KeyText(k), Result: cancelled.String()}, nil
}

// requeue makes a dead letter wait again. It replies 200, 409 if the key has a timer, or 404.
func (s *Server) requeue(r *http.Request) (int, any, error) {
	k, err := key(r)
	if err != nil {
		return 0, nil, err
	}
	results, err := s.o.Timers.Requeue(r.Context(), k)
	if err != nil {
		return 0, nil, err
	}
	status := map[durable.RequeueResult]int{
		durable.Requeued: http.StatusOK, durable.RequeueExists: http.StatusConflict, durable.RequeueAbsent: http.StatusNotFound,
	}[results[0]]
	return status, wire.Result{Key: durable.KeyText(k), Result: results[0].String()}, nil
}

// purge removes a dead letter. It replies 200 or 404.
func (s *Server) purge(r *http.Request) (int, any, error) {
	k, err := key(r)
	if err != nil {
		return 0, nil, err
	}
	n, err := s.o.Timers.Purge(r.Context(), k)
	switch {
	case err != nil:
		return 0, nil, err
	case n == 0:
		return http.StatusNotFound, wire.Result{Key: durable.KeyText(k), Result: durable.RequeueAbsent.String()}, nil
	}
	return http.StatusOK, wire.Result{Key: durable.KeyText(k), Result: "purged"}, nil
}
