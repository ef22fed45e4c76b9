// Package strictjson decodes the JSON of clients. It refuses what encoding/json would alter or
// ignore: text that is not UTF-8, and names that are unknown, given twice or in another case. It
// stops at the first error, names the field in it, and allocates at most a small multiple of its
// input.
package strictjson

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// FieldError is the error of a field, or of the whole value, that is not what it must be.
type FieldError struct {
	Field, Value, Range string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %s, must be %s", e.Field, e.Value, e.Range)
}

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

// Decode decodes an object, or null, into the struct that v points to. An error is a *FieldError,
// in which the whole value is called whole, such as "the request", or wraps a *json.SyntaxError.
//
// Each field of the struct has its name in a json tag, or is an embedded struct. It is a string, a
// bool, an int64, a []byte (base64), a map[string]string with its maximum length in a max tag, a
// pointer to a struct, or, for an array, a func(i int, v *T) error, which is called with each
// element as soon as that is decoded. null leaves a field as it is. A utf8 tag tells clients how
// to send text that is not UTF-8.
func Decode(b []byte, whole string, v any) error {
	d := decoder{b: b, whole: whole}
	err := d.value("", "", reflect.ValueOf(v).Elem())
	if err != nil && !errors.Is(err, errSyntax) {
		return err
	}
	// decoder leaves the syntax to encoding/json, but goes first, because encoding/json allocates
	// for each level of nesting.
	var syntax *json.SyntaxError
	if e := json.Unmarshal(b, new(ignored)); errors.As(e, &syntax) {
		return fmt.Errorf("at byte %d of it, %w", syntax.Offset, e)
	}
	return err
}

// ignored is any JSON.
type ignored struct{}

func (*ignored) UnmarshalJSON([]byte) error { return nil }

var (
	errSyntax = errors.New("no JSON")
	errUTF8   = errors.New("not valid UTF-8")
)

// decoder decodes JSON. It reads commas and colons as spaces, and any bracket as the end of an
// object or array.
type decoder struct {
	b     []byte // the rest
	whole string
}

// more reports whether the current object or array has another name or value.
func (d *decoder) more() bool {
	d.b = bytes.TrimLeft(d.b, " \t\r\n,:")
	return len(d.b) > 0 && d.b[0] != '}' && d.b[0] != ']'
}

// token reads a bracket, a string, a number or a word. It returns a space at the end of the input.
func (d *decoder) token() (t []byte) {
	d.more()
	if len(d.b) == 0 {
		return []byte(" ")
	}
	n := 1
	switch d.b[0] {
	case '{', '}', '[', ']':
	case '"':
		for n < len(d.b) && d.b[n] != '"' {
			if d.b[n] == '\\' {
				n++
			}
			n++
		}
		n = min(n+1, len(d.b))
	default:
		for n < len(d.b) && !strings.ContainsRune(" \t\r\n,]}", rune(d.b[n])) {
			n++
		}
	}
	t, d.b = d.b[:n], d.b[n:]
	return t
}

// text returns the text of a string token, or errUTF8 or errSyntax.
func text(t []byte) (s string, err error) {
	last := len(t) - 1
	switch {
	case t[0] != '"' || last == 0 || t[last] != '"':
		return "", errSyntax
	case !utf8.Valid(t) || hasHalf(t):
		return "", errUTF8
	case bytes.IndexByte(t, '\\') < 0:
		return string(t[1:last]), nil
	case json.Unmarshal(t, &s) != nil:
		return "", errSyntax
	}
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

// value decodes the value that comes next into v.
func (d *decoder) value(field string, tag reflect.StructTag, v reflect.Value) error {
	t := d.token()
	got, want := kindOf(t[0]), kindFor(v.Kind())
	switch {
	case got == "":
		return errSyntax
	case got == "null":
		return nil
	case got != want:
		return invalid(cmp.Or(field, d.whole), "a JSON "+got, "a JSON "+want)
	}
	switch got {
	case "boolean":
		v.SetBool(t[0] == 't')
		return nil
	case "number":
		n, err := strconv.ParseInt(string(t), 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != string(t) {
			return invalid(field, Shown(string(t)), "a whole number")
		}
		v.SetInt(n)
		return nil
	case "array":
		return d.array(field, v)
	case "object":
		return d.object(field, tag, v)
	}
	s, err := text(t)
	if errors.Is(err, errUTF8) {
		return invalid(field, err.Error(), "valid UTF-8"+tag.Get("utf8"))
	}
	if err != nil {
		return err
	}
	if v.Kind() == reflect.String {
		v.SetString(s)
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return invalid(field, Quote(s), "base64")
	}
	v.SetBytes(b)
	return nil
}

// kindOf returns the kind of a value that begins with c, or "".
func kindOf(c byte) string {
	switch c {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return "number"
	}
	return ""
}

// kindFor returns the kind of value that a field can hold.
func kindFor(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "boolean"
	case reflect.Int64:
		return "number"
	case reflect.Func:
		return "array"
	case reflect.String, reflect.Slice:
		return "string"
	}
	return "object"
}

// array decodes the rest of an array, and calls f with each element.
func (d *decoder) array(field string, f reflect.Value) error {
	for i := 0; d.more(); i++ {
		v := reflect.New(f.Type().In(1).Elem())
		if err := d.value(fmt.Sprintf("%s[%d]", field, i), "", v.Elem()); err != nil {
			return err
		}
		if err, _ := f.Call([]reflect.Value{reflect.ValueOf(i), v})[0].Interface().(error); err != nil {
			return err
		}
	}
	d.token()
	return nil
}

// object decodes the rest of an object into a map, a struct or a pointer to a struct.
func (d *decoder) object(field string, tag reflect.StructTag, v reflect.Value) error {
	var set func(name, path string) error
	switch v.Kind() {
	case reflect.Map:
		most, _ := strconv.Atoi(tag.Get("max"))
		set = func(name, path string) error {
			if v.Len() == most {
				return invalid(field, fmt.Sprintf("more than %d of them", most), fmt.Sprintf("at most %d", most))
			}
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			text := reflect.New(v.Type().Elem()).Elem()
			err := d.value(path, "", text)
			v.SetMapIndex(reflect.ValueOf(name), text)
			return err
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.object(field, tag, v.Elem())
	default:
		set = func(name, path string) error {
			f, tag, found := fieldOf(v, name)
			if !found {
				return invalid(path, "a field", "absent: there is no such field")
			}
			return d.value(path, tag, f)
		}
	}
	var names []string
	for d.more() {
		name, err := text(d.token())
		path := Shown(name)
		if field != "" {
			path = field + "." + path
		}
		switch {
		case errors.Is(err, errUTF8):
			return invalid("a name in "+cmp.Or(field, d.whole), err.Error(), "valid UTF-8")
		case err != nil:
			return err
		case slices.Contains(names, name):
			return invalid(path, "given twice", "given once")
		}
		names = append(names, name)
		if err := set(name, path); err != nil {
			return err
		}
	}
	d.token()
	return nil
}

// fieldOf returns the field of v, or of a struct that is embedded in it, with a name in JSON.
func fieldOf(v reflect.Value, name string) (_ reflect.Value, _ reflect.StructTag, found bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if v, tag, found := fieldOf(v.Field(i), name); found {
				return v, tag, true
			}
			continue
		}
		if tagged, _, _ := strings.Cut(f.Tag.Get("json"), ","); tagged == name {
			return v.Field(i), f.Tag, true
		}
	}
	return v, "", false
}
