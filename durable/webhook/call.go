package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
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
	// URL is absolute, http or https, without user and password, at most MaxURL bytes of UTF-8.
	// Its host is a name in ASCII or an IP address; an IPv4 address has four decimal numbers.
	URL string
	// Headers are sent unchanged: names are tokens, values UTF-8. Host, Idempotency-Key, headers
	// about the connection, and those that begin with Limbo- cannot be set. If there is a body and
	// no Content-Type, that is application/octet-stream.
	Headers map[string]string
	// Timeout bounds the whole call, in milliseconds, rounded up, at most MaxTimeout.
	// Default 0: the handler's Options.Timeout.
	Timeout time.Duration
	// Body is any bytes. The whole encoded call must fit into a timer's body, durable.MaxBody bytes.
	Body []byte
}

// FieldError is an error about one field of a call or of the options.
type FieldError struct {
	Field string // such as "url" or "headers.X-Trace"
	Value string // its value, shortened
	Range string // the allowed values
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("webhook: %s is %s, must be %s", e.Field, e.Value, e.Range)
}

const notUTF8 = plain("not valid UTF-8")

// plain is a value that errors show without quotes.
type plain string

func bytesLong(n int) plain { return plain(fmt.Sprintf("%d bytes long", n)) }

func fieldError(field string, value any, must string) error {
	s, ok := value.(string)
	if ok {
		s = strictjson.Quote(s)
	} else {
		s = fmt.Sprint(value)
	}
	return &FieldError{Field: field, Value: s, Range: must}
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
	if !utf8.ValidString(raw) {
		return nil, fieldError("url", notUTF8, "valid UTF-8; percent encoding takes any bytes")
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
	case canonical(u.Hostname()) == "":
		return nil, fieldError("url", raw, "a URL whose host is a name of ASCII letters, digits, - and _ (others begin with xn--), or an address with four decimal numbers or of IPv6")
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

// canonical returns the common form of all spellings of a host, so that they share one limit; ""
// for a host that only some resolvers understand, such as resolvers that read 0x7f.1 as an address
// or map a name to ASCII.
func canonical(host string) string {
	host = strings.ToLower(strings.TrimRight(host, "."))
	if a, err := netip.ParseAddr(host); err == nil {
		return inner(a).String()
	}
	for i := range len(host) {
		if c := host[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return ""
		}
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok && strings.Trim(hex, "0123456789abcdef") == "" || strings.Trim(last, "0123456789") == "" {
		return "" // a number, so not the end of a name
	}
	return host
}

// reserved are the headers that a call cannot set, because they frame the request or the handler
// sets them.
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
	seen := make(map[string]bool, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) { // sorted, so that the same call has the same error
		if len(name) > maxHeaderName || !isToken(name) {
			return fieldError("headers", name, fmt.Sprintf("names of 1 to %d letters, digits and !#$%%&'*+-.^_`|~", maxHeaderName))
		}
		value := headers[name]
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case reserved[canonical] || strings.HasPrefix(canonical, reservedPrefix):
			return fieldError("headers", name, "names that the handler does not set itself")
		case seen[canonical]:
			return fieldError("headers", name, "names that differ by more than case")
		case len(value) > MaxHeader:
			return fieldError("headers."+name, bytesLong(len(value)), fmt.Sprintf("at most %d bytes long", MaxHeader))
		case !isFieldValue(value):
			return fieldError("headers."+name, value, "without control characters")
		case !utf8.ValidString(value):
			return fieldError("headers."+name, notUTF8, "valid UTF-8")
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

// wire is a call as encoded in a timer's body, with the call's body as text or in base64. The maximum
// of headers is MaxHeaders.
type wire struct {
	Version   int64             `json:"v"`
	Method    string            `json:"method,omitempty"`
	URL       string            `json:"url" utf8:"; percent encoding takes any bytes"`
	Headers   map[string]string `json:"headers,omitempty" max:"32"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	Text      string            `json:"text,omitempty" utf8:"; base64 takes any bytes"`
	Base64    []byte            `json:"base64,omitempty"`
}

// Encode returns the body of a timer that makes the call: JSON of version 1. It refuses, with a
// *FieldError, a call that [Call.Check] refuses, and a call that does not fit into a timer's body.
func Encode(c Call) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	tooLong := func(n int, by string) error {
		return fieldError("body", bytesLong(n), fmt.Sprintf("shorter by %s: the encoded call has at most %d bytes", by, durable.MaxBody))
	}
	if n := len(c.Body) - durable.MaxBody; n > 0 {
		return nil, tooLong(len(c.Body), fmt.Sprintf("more than %d", n))
	}
	w := wire{
		Version: version, Method: c.Method, URL: c.URL, Headers: c.Headers,
		TimeoutMS: (c.Timeout + time.Millisecond - 1).Milliseconds(),
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
	if n := len(b) - durable.MaxBody; n > 0 {
		return nil, tooLong(len(c.Body), strconv.Itoa(n))
	}
	return b, nil
}

// textIsShorter reports whether b is shorter in JSON as text than as base64.
func textIsShorter(b []byte) bool {
	text := len("text")
	for rest := b; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		switch {
		case r == utf8.RuneError && n == 1:
			return false
		case strings.ContainsRune("\"\\\b\f\n\r\t", r):
			text += 2
		case r < ' ' || r == '\u2028' || r == '\u2029':
			text += 6
		default:
			text += n
		}
	}
	return text <= len("base64")+base64.StdEncoding.EncodedLen(len(b))
}

// Decode is the inverse of [Encode]. It refuses unknown and duplicate fields, text that is not
// UTF-8, other versions, and calls that Check refuses.
func Decode(b []byte) (Call, error) {
	var w wire
	err := strictjson.Decode(b, "the timer's body", &w)
	if field := (*strictjson.FieldError)(nil); errors.As(err, &field) {
		return Call{}, (*FieldError)(field)
	}
	if err != nil {
		return Call{}, fmt.Errorf("webhook: the timer's body is no call: %w", err)
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
