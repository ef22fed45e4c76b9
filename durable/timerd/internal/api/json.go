package api

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

// decode decodes a request's JSON into v.
func decode(r *http.Request, v any) error {
	b, err := readBody(r)
	if err != nil {
		return err
	}
	return decodeBytes(b, v)
}

// decodeAny is decode for a request that may have no body.
func decodeAny(r *http.Request, v any) error {
	b, err := readBody(r)
	if err != nil || len(b) == 0 {
		return err
	}
	return decodeBytes(b, v)
}

func decodeBytes(b []byte, v any) error { return strictjson.Decode(b, "the request", v) }

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

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "application/json", "application/x-www-form-urlencoded": // the latter is curl's default with -d
		return true
	}
	return false
}

func badJSON(why string) *wire.Error {
	return &wire.Error{Status: http.StatusBadRequest, Code: "bad_json", Message: "the request is no JSON that is understood: " + why}
}
