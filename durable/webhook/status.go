package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

// snippet is the number of bytes of a reply in an error.
const snippet = 200

// StatusError is the error of a call whose reply has a status other than 2xx.
type StatusError struct {
	Call   string // method and host
	Status int
	Reply  string // the start of the reply
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("webhook: %s: %d %s", e.Call, e.Status, http.StatusText(e.Status))
	if e.Reply != "" {
		s += ": " + strconv.Quote(e.Reply)
	}
	return s
}

// judge returns the handler's result for a reply.
func (h *Handler) judge(res *http.Response, reply []byte, call string) error {
	status := res.StatusCode
	if status >= 200 && status < 300 {
		h.done.Add(1)
		return nil
	}
	err := &StatusError{Call: call, Status: status, Reply: start(reply)}
	if !retried(status) {
		return h.discard(err)
	}
	h.retried.Add(1)
	if d := retryAfter(res.Header, time.Now(), h.o.MaxRetryAfter); d > 0 {
		return durable.RetryAfter(d, err)
	}
	return err
}

// retried reports whether a call with this status may succeed later.
func retried(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

func start(reply []byte) string {
	return strings.ToValidUTF8(strings.TrimSpace(string(reply[:min(len(reply), snippet)])), "")
}

// retryAfter returns the wait that a reply requests, at most limit; 0 if it requests none, or a
// time in the past. A date is relative to the reply's own date, if it has one, so that the two
// clocks need not agree.
func retryAfter(header http.Header, now time.Time, limit time.Duration) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n > int64(limit/time.Second) {
			return limit
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), limit)
}
