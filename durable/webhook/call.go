package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable/store"
)

// The bounds of a call.
const (
	MaxURL     = 2048 // bytes of a URL
	MaxHeaders = 32   // headers of a call
	MaxHeader  = 4096 // bytes of a header's value; of its name 128
	// MaxTimeout is the longest timeout of a call.
	MaxTimeout = 10 * time.Minute

	maxHeaderName = 128
	version       = 1
)

// Call is the HTTP request that a timer makes.
type Call struct {
	// Method is GET, POST, PUT, PATCH or DELETE. Default POST.
	Method string
	// URL is absolute, http or https, without user and password, at most MaxURL
	// bytes long.
	URL string
	// Headers are sent as they are. Host, those about the connection, those that
	// begin with Limbo-, and Idempotency-Key cannot be set. If there is a body and no
	// Content-Type it is application/octet-stream.
	Headers map[string]string
	// Timeout bounds the whole call, in milliseconds, rounded up, at most MaxTimeout.
	// Default 0: the handler's Options.Timeout.
	Timeout time.Duration
	// Body is any bytes. The encoded call as a whole must fit into a timer's body,
	// store.MaxBody bytes.
	Body []byte
}

// FieldError is an error about one field of what was given.
type FieldError struct {
	Field string // such as "url" or "headers.X-Trace"
	Value string // what it was, shortened
	Range string // what it must be
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("webhook: %s is %s, must be %s", e.Field, e.Value, e.Range)
}

// plain is a value that is shown without quotes.
type plain string

func bytesLong(n int) plain { return plain(fmt.Sprintf("%d bytes long", n)) }

func fieldError(field string, value any, must string) error {
	v := fmt.Sprint(value)
	if s, ok := value.(string); ok {
		if len(s) > 100 {
			s = strings.ToValidUTF8(s[:100], "") + "…"
		}
		v = strconv.Quote(s)
	}
	return &FieldError{Field: field, Value: v, Range: must}
}

// Check refuses a call that is out of bounds, with a *FieldError.
func (c Call) Check() error {
	switch c.Method {
	case "", http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return fieldError("method", c.Method, "GET, POST, PUT, PATCH or DELETE")
	}
	if c.Timeout < 0 || c.Timeout > MaxTimeout {
		return fieldError("timeout", c.Timeout, fmt.Sprintf("0s (the default) to %v", MaxTimeout))
	}
	if _, err := parseURL(c.URL); err != nil {
		return err
	}
	return checkHeaders(c.Headers)
}

func parseURL(raw string) (*url.URL, error) {
	if len(raw) > MaxURL {
		return nil, fieldError("url", bytesLong(len(raw)), fmt.Sprintf("at most %d bytes long", MaxURL))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fieldError("url", raw, "a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fieldError("url", raw, "an absolute URL with http or https")
	case u.Hostname() == "":
		return nil, fieldError("url", raw, "a URL with a host")
	case u.User != nil:
		return nil, fieldError("url", u.Redacted(), "a URL without user and password; a header can carry them")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, fieldError("url", raw, "a URL with a port of 1 to 65535")
		}
	}
	return u, nil
}

// reserved are the headers that a call cannot set: they frame the request, or the
// handler sets them.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true, "Te": true,
	"Connection": true, "Keep-Alive": true, "Upgrade": true, "Expect": true,
	"Proxy-Connection": true, "Proxy-Authorization": true, "Proxy-Authenticate": true,
	"Idempotency-Key": true,
}

const reservedPrefix = "Limbo-"

func checkHeaders(headers map[string]string) error {
	if n := len(headers); n > MaxHeaders {
		return fieldError("headers", plain(fmt.Sprintf("%d of them", n)), fmt.Sprintf("at most %d", MaxHeaders))
	}
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	sort.Strings(names) // so that the same call has the same error
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		value := headers[name]
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !isToken(name) || len(name) > maxHeaderName:
			return fieldError("headers", name, fmt.Sprintf("names of 1 to %d letters, digits and !#$%%&'*+-.^_`|~", maxHeaderName))
		case reserved[canonical] || strings.HasPrefix(canonical, reservedPrefix):
			return fieldError("headers", name, "names that the handler does not set itself")
		case seen[canonical]:
			return fieldError("headers", name, "names that differ by more than case")
		case len(value) > MaxHeader:
			return fieldError("headers."+name, bytesLong(len(value)), fmt.Sprintf("at most %d bytes long", MaxHeader))
		case !isFieldValue(value):
			return fieldError("headers."+name, value, "without control characters")
		}
		seen[canonical] = true
	}
	return nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// wire is a call as it stands in a timer's body. The body is text if it is UTF-8
// and shorter so, else base64.
type wire struct {
	Version   int               `json:"v"`
	Method    string            `json:"method,omitempty"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	Text      string            `json:"text,omitempty"`
	Base64    []byte            `json:"base64,omitempty"`
}

// Encode returns the body of a timer that makes the call: JSON of version 1. It
// refuses, with a *FieldError, what [Call.Check] refuses, and what does not fit
// into a timer's body.
func Encode(c Call) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	w := wire{
		Version: version, Method: c.Method, URL: c.URL, Headers: c.Headers,
		TimeoutMS: int64(store.MillisOf(c.Timeout)),
	}
	if textIsShorter(c.Body) {
		w.Text = string(c.Body)
	} else {
		w.Base64 = c.Body
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	b := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if len(b) > store.MaxBody {
		return nil, fieldError("body", bytesLong(len(c.Body)),
			fmt.Sprintf("shorter by %d: the encoded call has at most %d bytes", len(b)-store.MaxBody, store.MaxBody))
	}
	return b, nil
}

// textIsShorter reports whether b in JSON is shorter as a string than in base64. A
// control character takes 6 bytes, a quote or backslash 2.
func textIsShorter(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	n := 0
	for _, c := range b {
		switch {
		case c < ' ':
			n += 6
		case c == '"' || c == '\\':
			n += 2
		default:
			n++
		}
	}
	return n <= (len(b)+2)/3*4
}

// Decode is the reverse of [Encode]. It refuses fields that it does not know, other
// versions, and what Check refuses.
func Decode(b []byte) (Call, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var w wire
	if err := dec.Decode(&w); err != nil {
		return Call{}, fmt.Errorf("webhook: the timer's body is no call: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Call{}, errors.New("webhook: the timer's body is no call: there is more after it")
	}
	if w.Version != version {
		return Call{}, fieldError("v", w.Version, strconv.Itoa(version))
	}
	if w.Text != "" && len(w.Base64) > 0 {
		return Call{}, fieldError("base64", bytesLong(len(w.Base64)), "absent beside text")
	}
	if w.TimeoutMS < 0 || w.TimeoutMS > MaxTimeout.Milliseconds() {
		return Call{}, fieldError("timeout_ms", w.TimeoutMS, fmt.Sprintf("0 (the default) to %d", MaxTimeout.Milliseconds()))
	}
	c := Call{
		Method: w.Method, URL: w.URL, Headers: w.Headers,
		Timeout: time.Duration(w.TimeoutMS) * time.Millisecond, Body: w.Base64,
	}
	if w.Text != "" {
		c.Body = []byte(w.Text)
	}
	return c, c.Check()
}
