package api

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

const (
	maxScheduleKey = 480
	maxNote        = 256
	maxPreview     = 1000
	defaultPreview = 10
)

const schedulesPath = "/schedules/"

// postSchedule serves POST /schedules/preview and POST /schedules/{key}/{verb}. The verb follows
// the last slash of the path. A mux's pattern cannot have a verb after {key...}, and {key} would
// refuse a key whose slashes are not encoded, which the other routes accept.
func (s *Server) postSchedule(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), schedulesPath)
	if path == "preview" {
		s.schedulePosts[path].ServeHTTP(w, r)
		return
	}
	i := strings.LastIndexByte(path, '/')
	h := s.schedulePosts["{key}/"+path[i+1:]]
	key, err := url.PathUnescape(path[:max(i, 0)])
	if h == nil || i < 0 || err != nil {
		s.other.ServeHTTP(w, r)
		return
	}
	r.SetPathValue("key", key)
	h.ServeHTTP(w, r)
}

// scheduleKey checks and returns the key in the path.
func scheduleKey(r *http.Request) (string, error) {
	k := r.PathValue("key")
	if n := len(k); n < 1 || n > maxScheduleKey {
		return k, invalid("key", lengthOf(n), "1 to 480 bytes long")
	}
	if strings.Contains(k, "\x00") {
		return k, invalid("key", quote(k), "without zero bytes")
	}
	return k, nil
}

// scheduleError returns the reply to an error about a schedule. A schedule that this process cannot
// read gives 409, because the store has not failed.
func (s *Server) scheduleError(r *http.Request, key string, err error, sent map[string]string) error {
	if storeError(err, err).Code != "store" {
		return err
	}
	if info, readErr := s.o.Timers.GetSchedule(r.Context(), key); readErr == nil && info.Problem == err.Error() {
		return &wire.Error{Status: http.StatusConflict, Code: "problem", Message: err.Error()}
	}
	var field *durable.FieldError
	if errors.As(err, &field) {
		return fieldError(field, sent)
	}
	return err
}

// putSchedule creates or replaces a schedule: 201, 200, or 409 if if_absent refuses it.
func (s *Server) putSchedule(r *http.Request) (int, any, error) {
	var body wire.Schedule
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	k, err := scheduleKey(r)
	if err != nil {
		return 0, nil, err
	}
	schedule, err := scheduleOf(k, &body)
	if err != nil {
		return 0, nil, err
	}
	result, info, err := s.o.Timers.PutSchedule(r.Context(), schedule)
	var field *durable.FieldError
	if errors.As(err, &field) {
		return 0, nil, fieldError(field, textsOf(&body.Recurrence, &body.Policy))
	}
	if err != nil {
		return 0, nil, s.scheduleError(r, k, err, nil)
	}
	reply := wire.ScheduleResult{Key: k, Result: result.String()}
	switch result {
	case durable.ScheduleExists:
		return http.StatusConflict, reply, nil
	case durable.ScheduleCreated:
		reply.Next, reply.Warning = plannedTimes(info.Next), schedule.Warning()
		return http.StatusCreated, reply, nil
	}
	reply.Next, reply.Warning = plannedTimes(info.Next), schedule.Warning()
	return http.StatusOK, reply, nil
}

// getSchedule shows one schedule.
func (s *Server) getSchedule(r *http.Request) (int, any, error) {
	k, err := scheduleKey(r)
	if err != nil {
		return 0, nil, err
	}
	info, err := s.o.Timers.GetSchedule(r.Context(), k)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, scheduleInfoOf(info, true), nil
}

// schedules lists the schedules, by key.
func (s *Server) schedules(r *http.Request) (int, any, error) {
	limit, after, err := pageOf(r, nil)
	if err != nil {
		return 0, nil, err
	}
	page := wire.SchedulePage{Schedules: []wire.ScheduleInfo{}}
	for info, err := range s.o.Timers.SchedulesAfter(r.Context(), after.Key) {
		if err != nil {
			return 0, nil, err
		}
		if len(page.Schedules) == limit {
			page.Next = formatCursor(after)
			break
		}
		page.Schedules = append(page.Schedules, scheduleInfoOf(info, false))
		after.Key = info.Key
	}
	return http.StatusOK, page, nil
}

// deleteSchedule removes a schedule; with occurrences=cancel it also cancels the waiting
// occurrences, including those that an earlier deletion left. It replies 200, or 404 if there was
// no schedule.
func (s *Server) deleteSchedule(r *http.Request) (int, any, error) {
	k, err := scheduleKey(r)
	if err != nil {
		return 0, nil, err
	}
	cancel := false
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case part == "":
		case name != "occurrences":
			return 0, nil, invalid(strictjson.Shown(name), "a parameter", "absent: there is occurrences")
		case value == "cancel" || value == "keep" || value == "":
			cancel = value == "cancel"
		default:
			return 0, nil, invalid("occurrences", quote(value), "keep or cancel")
		}
	}
	reply, status, n := wire.ScheduleResult{Key: k, Result: "deleted"}, http.StatusOK, 0
	err = s.o.Timers.DeleteSchedule(r.Context(), k)
	if errors.Is(err, durable.ErrNotFound) {
		reply.Result, status, err = durable.NotFound.String(), http.StatusNotFound, nil
	}
	if err == nil && cancel {
		n, err = s.o.Timers.CancelOccurrences(r.Context(), k)
	}
	if err != nil {
		return 0, nil, err
	}
	reply.Cancelled = &n
	return status, reply, nil
}

func (s *Server) pauseSchedule(r *http.Request) (int, any, error) {
	var body wire.Note
	if err := decodeAny(r, &body); err != nil {
		return 0, nil, err
	}
	if n := len(body.Note); n > maxNote {
		return 0, nil, invalid("note", lengthOf(n), "at most 256 bytes long")
	}
	return s.change(r, "paused", func(k string) error { return s.o.Timers.PauseSchedule(r.Context(), k, body.Note) })
}

func (s *Server) resumeSchedule(r *http.Request) (int, any, error) {
	if err := decodeAny(r, &struct{}{}); err != nil {
		return 0, nil, err
	}
	return s.change(r, "resumed", func(k string) error { return s.o.Timers.ResumeSchedule(r.Context(), k) })
}

// change calls f with the key in the path, and replies with the result.
func (s *Server) change(r *http.Request, result string, f func(key string) error) (int, any, error) {
	k, err := scheduleKey(r)
	if err != nil {
		return 0, nil, err
	}
	if err := f(k); err != nil {
		return 0, nil, s.scheduleError(r, k, err, nil)
	}
	return http.StatusOK, wire.ScheduleResult{Key: k, Result: result}, nil
}

// triggerSchedule creates an occurrence that is due now. It reads the schedule, for its zone,
// before the change: a later failure would hide that the change was made.
func (s *Server) triggerSchedule(r *http.Request) (int, any, error) {
	if err := decodeAny(r, &struct{}{}); err != nil {
		return 0, nil, err
	}
	k, err := scheduleKey(r)
	if err != nil {
		return 0, nil, err
	}
	info, err := s.o.Timers.GetSchedule(r.Context(), k)
	if err != nil {
		return 0, nil, err
	}
	created, err := s.o.Timers.TriggerSchedule(r.Context(), k)
	if err != nil {
		return 0, nil, s.scheduleError(r, k, err, nil)
	}
	return http.StatusOK, wire.ScheduleResult{
		Key: k, Result: "triggered", Path: pathOf(created),
		Planned: formatPlanned(durable.PlannedTime(created).In(zoneOf(info))),
	}, nil
}

// backfillSchedule creates the occurrences of past planned times. If it fails after some, the reply
// has their number in addition to the error.
func (s *Server) backfillSchedule(r *http.Request) (int, any, error) {
	var body wire.Interval
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	k, err := scheduleKey(r)
	if err != nil {
		return 0, nil, err
	}
	sent := map[string]string{"from": body.From, "to": body.To}
	var times [2]time.Time
	for i, name := range []string{"from", "to"} {
		if sent[name] == "" {
			return 0, nil, invalid(name, "absent", "a time such as 2030-01-02T15:04:05Z")
		}
		if times[i], err = readTime(name, sent[name]); err != nil {
			return 0, nil, err
		}
	}
	if times[1].Before(times[0]) {
		return 0, nil, invalid("to", quote(body.To), "at or after from, "+quote(body.From))
	}
	n, err := s.o.Timers.BackfillSchedule(r.Context(), k, times[0], times[1])
	if err != nil {
		return 0, n, s.scheduleError(r, k, err, sent)
	}
	return http.StatusOK, wire.ScheduleResult{Key: k, Result: "backfilled", Count: &n}, nil
}

// preview returns planned times. It does not use the store.
func (s *Server) preview(r *http.Request) (int, any, error) {
	body := wire.Preview{Count: defaultPreview}
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	var schedule durable.Schedule
	if err := setRecurrence(&schedule, &body.Recurrence); err != nil {
		return 0, nil, err
	}
	if body.Count < 1 || body.Count > maxPreview {
		return 0, nil, invalid("count", strconv.FormatInt(body.Count, 10), "1 to 1000")
	}
	from, err := readTime("from", body.From)
	if err != nil {
		return 0, nil, err
	}
	if body.From == "" {
		from = time.Now()
	}
	next, err := schedule.Upcoming(from, int(body.Count))
	var field *durable.FieldError
	if errors.As(err, &field) {
		return 0, nil, fieldError(field, textsOf(&body.Recurrence, &wire.Policy{}))
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, wire.Planned{Next: plannedTimes(next), Warning: schedule.Warning()}, nil
}
