package api

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
)

// decode reads a request's whole JSON with f.
func decode(r *http.Request, f func(*strictjson.Reader) error) error {
	b, err := readBody(r)
	if err != nil {
		return err
	}
	return decodeBytes(b, f)
}

// decodeAny is decode for a request that may have no body.
func decodeAny(r *http.Request, f func(*strictjson.Reader) error) error {
	b, err := readBody(r)
	if err != nil || len(b) == 0 {
		return err
	}
	return decodeBytes(b, f)
}

func decodeBytes(b []byte, f func(*strictjson.Reader) error) error {
	r := newReader(b)
	if err := f(r); err != nil {
		return err
	}
	return r.End()
}

func readBody(r *http.Request) ([]byte, error) {
	if ct := r.Header.Get("Content-Type"); ct != "" && !isJSON(ct) {
		e := invalid("Content-Type", quote(ct), "application/json")
		e.Status = http.StatusUnsupportedMediaType
		return nil, e
	}
	b, err := io.ReadAll(r.Body)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, err
	} else if err != nil {
		return nil, badJSON(err.Error())
	}
	return b, nil
}

func newReader(b []byte) *strictjson.Reader { return strictjson.New(b, "the request") }

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "application/json", "application/x-www-form-urlencoded": // the latter is curl's default with -d
		return true
	}
	return false
}

func badJSON(why string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "bad_json", Message: "the request is no JSON that is understood: " + why}
}
