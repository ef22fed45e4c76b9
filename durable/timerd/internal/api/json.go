package api

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reader reads a request's JSON from front to back and stops at the first thing that
// does not belong there. encoding/json decodes on after such a thing, allocates many
// times the size of what it decodes, alters text that is not UTF-8, and takes names in
// any case and more than once.
type reader struct {
	b     []byte // what is left
	size  int    // of the whole
	place string // of the object that is read, before its fields' names
}

// at returns a field's name with its place.
func (r *reader) at(field string) string { return cmp.Or(r.place+field, "the request") }

// decode reads a request's JSON, all of it, with f.
func decode(r *http.Request, f func(*reader) error) error {
	if ct := r.Header.Get("Content-Type"); ct != "" && !isJSON(ct) {
		e := invalid("Content-Type", quote(ct), "application/json")
		e.Status = http.StatusUnsupportedMediaType
		return e
	}
	b, err := io.ReadAll(r.Body)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return err
	} else if err != nil {
		return badJSON(err.Error())
	}
	rd := &reader{b: b, size: len(b)}
	if err := f(rd); err != nil {
		return err
	}
	if rd.space(); len(rd.b) > 0 {
		return rd.broken("there is more after the JSON object")
	}
	return nil
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "application/json", "application/x-www-form-urlencoded": // the latter is what curl -d says
		return true
	}
	return false
}

func badJSON(why string) error {
	return &Error{Status: http.StatusBadRequest, Code: "bad_json", Message: "the request is no JSON that is understood: " + why}
}

// broken is the error of JSON that is none.
func (r *reader) broken(why string) error {
	return badJSON(fmt.Sprintf("at byte %d of it, %s", r.size-len(r.b), why))
}

func (r *reader) space() { r.b = bytes.TrimLeft(r.b, " \t\r\n") }

// is reads a character, after spaces, if it comes next.
func (r *reader) is(c byte) bool {
	r.space()
	if len(r.b) == 0 || r.b[0] != c {
		return false
	}
	r.b = r.b[1:]
	return true
}

// word reads a literal if it comes next.
func (r *reader) word(w string) bool {
	r.space()
	if !bytes.HasPrefix(r.b, []byte(w)) {
		return false
	}
	r.b = r.b[len(w):]
	return true
}

// other is the error of a field whose value is of another kind.
func (r *reader) other(field, want string) error {
	r.space()
	if len(r.b) == 0 {
		return r.broken("it ends")
	}
	var got string
	switch c := r.b[0]; {
	case c == '{':
		got = "object"
	case c == '[':
		got = "array"
	case c == '"':
		got = "string"
	case c == '-' || '0' <= c && c <= '9':
		got = "number"
	case c == 't' || c == 'f':
		got = "boolean"
	default:
		return r.broken("there is no JSON value")
	}
	return invalid(r.at(field), "a JSON "+got, "a JSON "+want)
}

// object reads an object, or null, and calls f with each name. f reads the value. The
// request as a whole is the field "".
func (r *reader) object(field string, f func(name string) error) error {
	if r.word("null") {
		return nil
	}
	if !r.is('{') {
		return r.other(field, "object")
	}
	if r.is('}') {
		return nil
	}
	outer, names := r.place, []string(nil)
	if field != "" {
		r.place += field + "."
	}
	for {
		r.space()
		if len(r.b) == 0 || r.b[0] != '"' {
			return r.broken("a name in quotes is missing")
		}
		name, err := r.quoted()
		switch {
		case errors.Is(err, errUTF8):
			return invalid("a name in "+cmp.Or(strings.TrimSuffix(r.place, "."), "the request"), errUTF8.Error(), "valid UTF-8")
		case err != nil:
			return err
		case slices.Contains(names, name):
			return invalid(r.at(shown(name)), "given twice", "given once")
		case !r.is(':'):
			return r.broken("a colon is missing")
		}
		names = append(names, name)
		if err := f(name); err != nil {
			return err
		}
		if r.is('}') {
			r.place = outer
			return nil
		}
		if !r.is(',') {
			return r.broken("a comma or } is missing")
		}
	}
}

// array reads an array, or null, and calls f for each element. f reads it.
func (r *reader) array(field string, f func(i int) error) error {
	if r.word("null") {
		return nil
	}
	if !r.is('[') {
		return r.other(field, "array")
	}
	if r.is(']') {
		return nil
	}
	for i := 0; ; i++ {
		if err := f(i); err != nil {
			return err
		}
		if r.is(']') {
			return nil
		}
		if !r.is(',') {
			return r.broken("a comma or ] is missing")
		}
	}
}

// text reads a string, or null, into v. wayOut says how a client can send other bytes
// than UTF-8, if it can.
func (r *reader) text(field string, v *string, wayOut string) (err error) {
	if r.word("null") {
		return nil
	}
	if r.space(); len(r.b) == 0 || r.b[0] != '"' {
		return r.other(field, "string")
	}
	if *v, err = r.quoted(); errors.Is(err, errUTF8) {
		return invalid(r.at(field), errUTF8.Error(), "valid UTF-8"+wayOut)
	}
	return err
}

var errUTF8 = errors.New("not valid UTF-8")

// quoted reads a string, which comes next.
func (r *reader) quoted() (string, error) {
	end := 1
	for ; end < len(r.b) && r.b[end] != '"'; end++ {
		switch c := r.b[end]; {
		case c == '\\':
			end++
		case c < ' ':
			return "", r.broken("a string has a control character")
		}
	}
	if end >= len(r.b) {
		return "", r.broken("a string does not end")
	}
	raw := r.b[1:end]
	if !utf8.Valid(raw) || hasHalf(raw) {
		return "", errUTF8
	}
	s := ""
	if bytes.IndexByte(raw, '\\') < 0 {
		s = string(raw)
	} else if json.Unmarshal(r.b[:end+1], &s) != nil {
		return "", r.broken("a string has an escape that JSON does not have")
	}
	r.b = r.b[end+1:]
	return s, nil
}

// hasHalf reports whether an escape in s stands for half a character, without the
// other half.
func hasHalf(s []byte) bool {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return false
		}
		c, n := escaped(s[i:])
		if s = s[i+n:]; !utf16.IsSurrogate(c) {
			continue
		}
		low, n := escaped(s)
		if utf16.DecodeRune(c, low) == utf8.RuneError {
			return true
		}
		s = s[n:]
	}
}

// escaped returns the code of an escape with which s begins, and its length; 0 unless
// it is \u and four hexadecimal digits.
func escaped(s []byte) (code rune, n int) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, min(len(s), 2)
	}
	u, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	if err != nil {
		return 0, 2
	}
	return rune(u), 6
}

// base64 reads a string of base64, or null, into v.
func (r *reader) base64(field string, v *[]byte) error {
	s := ""
	if err := r.text(field, &s, ""); err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return invalid(r.at(field), quote(s), "base64")
	}
	*v = b
	return nil
}

// boolean reads true, false or null into v.
func (r *reader) boolean(field string, v *bool) error {
	switch {
	case r.word("true"):
		*v = true
	case r.word("false"), r.word("null"):
	default:
		return r.other(field, "boolean")
	}
	return nil
}

// unknown is the error of a name that a request cannot have.
func (r *reader) unknown(name string) error {
	return invalid(r.at(shown(name)), "a field", "absent: there is no such field")
}
