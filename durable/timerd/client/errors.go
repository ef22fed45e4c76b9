package client

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

// The kinds of an Error, for errors.Is. An Error can be of several kinds.
var (
	// ErrInvalid means that a value of the request is out of range. Error.Field names it.
	ErrInvalid = errors.New("client: invalid request")
	// ErrUnauthorized means that timerd, or a proxy, refused the token.
	ErrUnauthorized = errors.New("client: unauthorized")
	// ErrForbidden means that timerd, or a proxy, refused the request: a timerd without a token
	// accepts requests only by IP address or as localhost.
	ErrForbidden = errors.New("client: forbidden")
	// ErrNotFound means that there is no such timer or schedule.
	ErrNotFound = errors.New("client: no such timer or schedule")
	// ErrProblem means that timerd cannot read the schedule, or does not know its time zone.
	ErrProblem = errors.New("client: the schedule has a problem")
	// ErrFull means that the store refuses further timers: it is at its limit of pending timers, or
	// out of memory.
	ErrFull = errors.New("client: no more timers can be held")
	// ErrUnavailable means that timerd or its store did not answer, or answered that it cannot
	// serve the request now. A later attempt can succeed.
	ErrUnavailable = errors.New("client: timerd is unavailable")
	// ErrUnsure means that the change may have been made: the request was sent, and no answer
	// says whether timerd carried it out.
	ErrUnsure = errors.New("client: the change may have been made")
	// ErrUnconfirmed means that the change was made, but on fewer replicas than timerd's
	// -wait-replicas.
	ErrUnconfirmed = errors.New("client: the change was made on too few replicas")
)

// Error is the failure of a request. Fields that do not apply are empty.
type Error struct {
	Method, Path string
	Status       int      // of the reply; 0: there was no reply, or the client refused the request
	Code         string   // of timerd, such as invalid; empty if the reply is not timerd's
	Also         []string // codes of further errors of the store
	Message      string
	// Field, Value and Range are the name, the value and the allowed range of a value that is out
	// of range. Field is a JSON name for a field of the request, and a Go name for an option or
	// argument that the client refuses.
	Field, Value, Range string
	RetryAfter          time.Duration // of the reply's Retry-After header
	Attempts            int           // how often the request was sent
	Err                 error         // of the connection or the context; nil if there was a reply

	unsure    bool
	retriable bool
	receipts  []Receipt // of a batch
	count     int       // of a backfill
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("client: ")
	if e.Method != "" {
		fmt.Fprintf(&b, "%s %s: ", e.Method, truncate(e.Path, 200))
	}
	b.WriteString(e.Message)
	switch {
	case e.Status != 0 && e.Code != "":
		fmt.Fprintf(&b, " (%d %s)", e.Status, strings.Join(append([]string{e.Code}, e.Also...), ", "))
	case e.Status != 0:
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, ", after %d attempts", e.Attempts)
	}
	if e.unsure && e.Code != "unsure" {
		b.WriteString("; the change may have been made")
	}
	return b.String()
}

// Unwrap returns the error of the connection or the context.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether e is of the given kind.
func (e *Error) Is(kind error) bool {
	code := func(codes ...string) bool {
		return slices.ContainsFunc(codes, func(c string) bool { return e.Code == c || slices.Contains(e.Also, c) })
	}
	switch kind {
	case ErrInvalid:
		return code("invalid", "bad_json", "too_large")
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized
	case ErrForbidden:
		return e.Status == http.StatusForbidden
	case ErrNotFound:
		return code("not_found") // a 404 of a proxy, or of a wrong base URL, says nothing about the key
	case ErrProblem:
		return code("problem")
	case ErrFull:
		return code("full")
	case ErrUnavailable:
		return e.retriable || code("store", "closed", "timeout")
	case ErrUnsure:
		return e.unsure
	case ErrUnconfirmed:
		return code("unconfirmed")
	}
	return false
}

// failure is the reply to a request that failed.
type failure struct {
	wire.Failure
	Result string `json:"result"` // set if the reply is an answer that the API foresees
}

func (f *failure) fill(e *Error) {
	e.Code, e.Also, e.Message = f.Error.Code, f.Error.Also, f.Error.Message
	e.Field, e.Value, e.Range = f.Error.Field, f.Error.Value, f.Error.Range
	e.receipts, e.count = new(reader).receipts(&wire.Results{Timers: f.Timers}), f.Count
}

// invalid returns the error of a value that the client refuses.
func invalid(field, value, must string) *Error {
	return &Error{
		Code: "invalid", Field: field, Value: value, Range: must,
		Message: fmt.Sprintf("%s is %s, must be %s", field, value, must),
	}
}

// quoteShort quotes and shortens text of any bytes.
func quoteShort(s string) string { return strconv.Quote(truncate(s, 100)) }

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
