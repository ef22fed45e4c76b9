package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// Error is the reply to a request that failed, within {"error": …}.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"` // one word, for programs
	Message string `json:"message"`
	Field   string `json:"field,omitempty"` // what was out of bounds
	Value   string `json:"value,omitempty"`
	Range   string `json:"range,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// invalid is the error of a field: its name, what it was and what it must be.
func invalid(field, value, must string) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: "invalid", Field: field, Value: value, Range: must,
		Message: fmt.Sprintf("%s is %s, must be %s", field, value, must),
	}
}

// quote shows a value that a client sent, shortened.
func quote(s string) string {
	if len(s) > 100 {
		s = strings.ToValidUTF8(s[:100], "") + "…"
	}
	return strconv.Quote(s)
}

func lengthOf(n int) string { return fmt.Sprintf("%d bytes long", n) }

// within puts where a field stands before its name.
func within(place string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Field == "" {
		return err
	}
	f := *e
	f.Field = place + e.Field
	f.Message = strings.Replace(e.Message, e.Field, f.Field, 1)
	return &f
}

// asError gives each error its status.
func asError(err error) *Error {
	var e *Error
	var field *webhook.FieldError
	var large *http.MaxBytesError
	reply := func(status int, code string) *Error {
		return &Error{Status: status, Code: code, Message: err.Error()}
	}
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &field):
		return invalid(field.Field, field.Value, field.Range)
	case errors.As(err, &large):
		e := invalid("the request", "larger", fmt.Sprintf("at most %d bytes long", large.Limit))
		e.Status, e.Code = http.StatusRequestEntityTooLarge, "too_large"
		return e
	case errors.Is(err, store.ErrNotFound):
		return reply(http.StatusNotFound, "not_found")
	case errors.Is(err, store.ErrFull):
		return reply(http.StatusInsufficientStorage, "full")
	case errors.Is(err, store.ErrUnsure):
		return reply(http.StatusGatewayTimeout, "unsure")
	case errors.Is(err, store.ErrUnconfirmed):
		return reply(http.StatusGatewayTimeout, "unconfirmed")
	case errors.Is(err, store.ErrClosed):
		return reply(http.StatusServiceUnavailable, "closed")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return reply(http.StatusServiceUnavailable, "timeout")
	}
	return reply(http.StatusBadGateway, "store")
}

// decode reads a request's JSON, all of it, into v.
func decode(r *http.Request, v any) error {
	if ct := r.Header.Get("Content-Type"); ct != "" && !isJSON(ct) {
		e := invalid("Content-Type", quote(ct), "application/json")
		e.Status = http.StatusUnsupportedMediaType
		return e
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); errors.Is(more, io.EOF) {
			return nil
		}
		err = errors.New("there is more after the JSON object")
	}
	var large *http.MaxBytesError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &large):
		return err
	case errors.As(err, &typ) && typ.Field != "":
		field := strings.ReplaceAll(typ.Field, "When.", "") // an embedded struct
		return invalid(field, "a JSON "+typ.Value, "a JSON "+jsonName(typ.Type.String()))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid(strings.Trim(name, `"`), "a field", "absent: there is no such field")
	}
	return &Error{Status: http.StatusBadRequest, Code: "bad_json", Message: "the request is no JSON that is understood: " + err.Error()}
}

func jsonName(goType string) string {
	switch goType {
	case "string", "*string":
		return "string"
	case "bool":
		return "true or false"
	case "[]uint8":
		return "string in base64"
	}
	if strings.HasPrefix(goType, "[]") {
		return "array"
	}
	return "object"
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "application/json", "application/x-www-form-urlencoded": // the latter is what curl -d says
		return true
	}
	return false
}
