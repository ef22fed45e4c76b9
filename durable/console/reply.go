package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/internal/webpage"
)

// failure is an error reply.
type failure struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
	// Count and AtLeast are the new count of a bulk action whose count was not confirmed.
	Count      *int `json:"count,omitempty"`
	AtLeast    bool `json:"at_least,omitempty"`
	RetryAfter int  `json:"retry_after,omitempty"` // seconds
	// Elsewhere: another process may know the answer. The reply closes the connection, because a
	// load balancer may choose a process only for each connection.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

func (f *failure) Error() string { return f.Message }

func badRequest(format string, args ...any) error {
	return &failure{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// failureOf returns the reply for an error.
func failureOf(err error) *failure {
	var f *failure
	var field *durable.FieldError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &field):
		return &failure{Status: http.StatusBadRequest, Message: err.Error()}
	case errors.Is(err, durable.ErrNotFound):
		return &failure{Status: http.StatusNotFound, Message: "no timer or schedule has this key: it has ended, or was removed"}
	case errors.Is(err, durable.ErrFull):
		return &failure{Status: http.StatusConflict, Message: err.Error()}
	}
	return &failure{Status: http.StatusServiceUnavailable, Message: "the store does not answer: " + err.Error()}
}

func writeError(w http.ResponseWriter, err error) {
	f := failureOf(err)
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	if f.Elsewhere {
		w.Header().Set("Connection", "close")
	}
	writeJSON(w, f.Status, f)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil { // a time after the year 9999, which no engine stores
		status, text = http.StatusInternalServerError, []byte(`{"error":"the reply cannot be written as JSON"}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(webpage.WriteTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// readJSON decodes a request's body, which is one object without unknown fields.
func readJSON(r *http.Request, v any) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != "application/json" {
		return &failure{
			Status:  http.StatusUnsupportedMediaType,
			Message: fmt.Sprintf("Content-Type is %.64q, must be application/json", r.Header.Get("Content-Type")),
		}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("there is more after the object")
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return &failure{
			Status:  http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("the request has more than %d bytes, must be at most %[1]d", maxRequest),
		}
	}
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return badRequest("the request's JSON is invalid: %v", err)
}

// rawKey is a key as the API transfers it: base64url without padding, because a key can have any
// bytes and JSON only UTF-8.
type rawKey string

func (k rawKey) MarshalText() ([]byte, error) {
	return []byte(base64.RawURLEncoding.EncodeToString([]byte(k))), nil
}

func (k *rawKey) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil {
		return badRequest("key is %.64q, must be base64url without padding", text)
	}
	*k = rawKey(b)
	return nil
}

// timerKey checks the key of a timer in a request, and returns it.
func timerKey(k rawKey) (string, error) {
	if err := durable.CheckKey(string(k)); err != nil {
		return "", badRequest("%v", err)
	}
	return string(k), nil
}

// readable returns s as UTF-8, with other bytes written as \xNN.
func readable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
