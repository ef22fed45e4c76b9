// Package strictjson reads JSON from front to back and stops at the first error. encoding/json
// continues after errors, allocates many times the size of its input, alters text that is not
// UTF-8, and accepts names in any case and repeatedly.
package strictjson

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Reader reads one JSON value.
type Reader struct {
	b     []byte // the rest of the input
	size  int    // of the whole
	whole string // the name of the whole value in errors
	place string // path of the current object, which precedes its fields' names
}

// New returns a reader of b. Errors call the whole value whole, such as "the request".
func New(b []byte, whole string) *Reader { return &Reader{b: b, size: len(b), whole: whole} }

// FieldError is the error of a field, or of the whole value, that is not what it must be.
type FieldError struct {
	Field, Value, Range string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %s, must be %s", e.Field, e.Value, e.Range)
}

// SyntaxError is the error of bytes that are not JSON.
type SyntaxError struct {
	Offset int
	Why    string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("at byte %d of it, %s", e.Offset, e.Why) }

func invalid(field, value, must string) error {
	return &FieldError{Field: field, Value: value, Range: must}
}

// Quote quotes a text for an error, shortened.
func Quote(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return strconv.Quote(s)
}

// Shown returns a field's name for an error, shortened.
func Shown(name string) string { return strings.Trim(Quote(name), `"`) }

// at returns a field's name with its path.
func (r *Reader) at(field string) string { return cmp.Or(r.place+field, r.whole) }

// objectName returns the name of the current object.
func (r *Reader) objectName() string { return cmp.Or(strings.TrimSuffix(r.place, "."), r.whole) }

// End returns an error unless all input was read.
func (r *Reader) End() error {
	if r.space(); len(r.b) > 0 {
		return r.broken("there is more after the JSON object")
	}
	return nil
}

// broken returns the error for bytes that are not JSON.
func (r *Reader) broken(why string) error {
	return &SyntaxError{Offset: r.size - len(r.b), Why: why}
}

func (r *Reader) space() { r.b = bytes.TrimLeft(r.b, " \t\r\n") }

// is reads c, after spaces, if it comes next.
func (r *Reader) is(c byte) bool {
	r.space()
	if len(r.b) == 0 || r.b[0] != c {
		return false
	}
	r.b = r.b[1:]
	return true
}

// Null reads null if it comes next.
func (r *Reader) Null() bool { return r.word("null") }

// word reads a literal if it comes next.
func (r *Reader) word(w string) bool {
	r.space()
	if !bytes.HasPrefix(r.b, []byte(w)) {
		return false
	}
	r.b = r.b[len(w):]
	return true
}

// other returns the error for a field whose value has another type.
func (r *Reader) other(field, want string) error {
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

// Object reads an object, or null, and calls f with each name. f reads the value. The whole value
// is the field "".
func (r *Reader) Object(field string, f func(name string) error) error {
	outer, inner := r.place, r.place
	if field != "" {
		inner += field + "."
	}
	var names []string
	err := r.items(field, "object", "{}", func(int) error {
		r.place = inner
		r.space()
		if len(r.b) == 0 || r.b[0] != '"' {
			return r.broken("a name in quotes is missing")
		}
		name, err := r.quoted()
		switch {
		case errors.Is(err, errUTF8):
			return invalid("a name in "+r.objectName(), errUTF8.Error(), "valid UTF-8")
		case err != nil:
			return err
		case slices.Contains(names, name):
			return invalid(r.at(Shown(name)), "given twice", "given once")
		case !r.is(':'):
			return r.broken("a colon is missing")
		}
		names = append(names, name)
		return f(name)
	})
	if err == nil {
		r.place = outer
	}
	return err
}

// Texts reads an object of up to most texts, or null, into v.
func (r *Reader) Texts(field string, most int, v *map[string]string) error {
	texts := make(map[string]string)
	err := r.Object(field, func(name string) error {
		if len(texts) == most {
			return invalid(r.objectName(), fmt.Sprintf("more than %d of them", most), fmt.Sprintf("at most %d", most))
		}
		var text string
		err := r.Text(Shown(name), &text, "")
		texts[name] = text
		return err
	})
	if len(texts) > 0 {
		*v = texts
	}
	return err
}

// Array reads an array, or null, and calls f for each element. f reads it.
func (r *Reader) Array(field string, f func(i int) error) error {
	return r.items(field, "array", "[]", f)
}

// items reads null, or a sequence in brackets: f reads each item.
func (r *Reader) items(field, kind, brackets string, f func(i int) error) error {
	if r.Null() {
		return nil
	}
	if !r.is(brackets[0]) {
		return r.other(field, kind)
	}
	if r.is(brackets[1]) {
		return nil
	}
	for i := 0; ; i++ {
		if err := f(i); err != nil {
			return err
		}
		if r.is(brackets[1]) {
			return nil
		}
		if !r.is(',') {
			return r.broken("a comma or " + brackets[1:] + " is missing")
		}
	}
}

// Text reads a string, or null, into v. wayOut tells clients how to send bytes that are not UTF-8,
// if that is possible.
func (r *Reader) Text(field string, v *string, wayOut string) (err error) {
	if r.Null() {
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

// quoted reads the string that comes next.
func (r *Reader) quoted() (string, error) {
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

// hasHalf reports whether s has an escaped surrogate without its other half.
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

// escaped returns the code of the escape at the start of s, and its length; the code is 0 unless
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

// Base64 reads a string of base64, or null, into v.
func (r *Reader) Base64(field string, v *[]byte) error {
	s := ""
	if err := r.Text(field, &s, ""); err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return invalid(r.at(field), Quote(s), "base64")
	}
	*v = b
	return nil
}

// Bool reads true, false or null into v.
func (r *Reader) Bool(field string, v *bool) error {
	switch {
	case r.word("true"):
		*v = true
	case r.word("false"), r.word("null"):
	default:
		return r.other(field, "boolean")
	}
	return nil
}

// Int reads a whole number, or null, into v.
func (r *Reader) Int(field string, v *int64) error {
	if r.Null() {
		return nil
	}
	r.space()
	end := len(r.b) - len(bytes.TrimLeft(r.b, "+-.0123456789Ee"))
	if end == 0 {
		return r.other(field, "number")
	}
	raw := string(r.b[:end])
	n, err := strconv.ParseInt(raw, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != raw {
		return invalid(r.at(field), Shown(raw), "a whole number")
	}
	r.b = r.b[end:]
	*v = n
	return nil
}

// Unknown returns the error for a name that an object cannot have.
func (r *Reader) Unknown(name string) error {
	return invalid(r.at(Shown(name)), "a field", "absent: there is no such field")
}
