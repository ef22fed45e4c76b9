package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// invalid returns the error of a field: its name, its value and its range.
func invalid(field, value, must string) *wire.Error {
	return &wire.Error{
		Status: http.StatusBadRequest, Code: "invalid", Field: field, Value: value, Range: must,
		Message: fmt.Sprintf("%s is %s, must be %s", field, value, must),
	}
}

// quote quotes and shortens a client's value.
func quote(s string) string { return strictjson.Quote(s) }

func lengthOf(n int) string { return fmt.Sprintf("%d bytes long", n) }

// within prefixes the name of an error's field with the field's place in the request.
func within(prefix string, err error) error {
	var e *wire.Error
	if !errors.As(err, &e) || e.Field == "" {
		return err
	}
	f := *e
	f.Field = prefix + e.Field
	f.Message = strings.Replace(e.Message, e.Field, f.Field, 1)
	return &f
}

// asError converts any error to an Error with its status.
func asError(err error) *wire.Error {
	var e *wire.Error
	var read *strictjson.FieldError
	var syntax *json.SyntaxError
	var field *webhook.FieldError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &read):
		return invalid(read.Field, read.Value, read.Range)
	case errors.As(err, &syntax):
		return badJSON(err.Error())
	case errors.As(err, &field):
		return invalid(field.Field, field.Value, field.Range)
	case errors.As(err, &large):
		e := invalid("the request", "larger", fmt.Sprintf("at most %d bytes long", large.Limit))
		e.Status, e.Code = http.StatusRequestEntityTooLarge, "too_large"
		return e
	}
	return storeError(err, err)
}

// kind is a kind of store errors.
type kind struct {
	err    error // nil: any other error
	status int
	code   string
}

// storeErrors are the errors that a store can return, in order of importance to a client. If
// several come together, the first determines the status and code of the reply, and also lists the
// others.
var storeErrors = []kind{
	{durable.ErrUnsure, http.StatusGatewayTimeout, "unsure"},
	{durable.ErrUnconfirmed, http.StatusGatewayTimeout, "unconfirmed"},
	{nil, http.StatusBadGateway, "store"},
	{durable.ErrClosed, http.StatusServiceUnavailable, "closed"},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "timeout"},
	{context.Canceled, http.StatusServiceUnavailable, "timeout"},
	{durable.ErrFull, http.StatusInsufficientStorage, "full"},
	{durable.ErrNotFound, http.StatusNotFound, "not_found"},
}

// storeError returns the reply to err, which is made of parts.
func storeError(err error, parts ...error) *wire.Error {
	e := &wire.Error{Message: err.Error()}
	for _, s := range storeErrors {
		switch {
		case !slices.ContainsFunc(parts, s.matches):
		case e.Code == "":
			e.Status, e.Code = s.status, s.code
		case s.code != e.Code && !slices.Contains(e.Also, s.code):
			e.Also = append(e.Also, s.code)
		}
	}
	return e
}

func (s *kind) matches(err error) bool {
	if s.err != nil {
		return errors.Is(err, s.err)
	}
	return !slices.ContainsFunc(storeErrors, func(s kind) bool { return s.err != nil && errors.Is(err, s.err) })
}
