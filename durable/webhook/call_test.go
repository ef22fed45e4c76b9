package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

func TestEncodeDecode(t *testing.T) {
	headers := map[string]string{}
	for i := range MaxHeaders {
		headers["X-"+strings.Repeat("x", i+1)] = ""
	}
	for name, c := range map[string]Call{
		"least":   {URL: "http://example.com"},
		"all":     {Method: "PUT", URL: "https://example.com:8443/a?b=c", Headers: map[string]string{"X-Trace": "a\tb", "content-type": "text/plain"}, Timeout: 1500 * time.Millisecond, Body: []byte("<text> & \"more\"")},
		"binary":  {URL: "http://[2001:db8::1]/", Body: []byte("\x00\xff\xfe")},
		"headers": {URL: "http://example.com", Headers: headers},
		"NULs":    {URL: "http://example.com", Body: make([]byte, 40_000)},
		"longest": {URL: "http://example.com/" + strings.Repeat("a", MaxURL-19), Headers: map[string]string{strings.Repeat("x", 128): strings.Repeat("v", MaxHeader)}, Timeout: MaxTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Encode(c)
			require.NoError(t, err)
			got, err := Decode(b)
			require.NoError(t, err)
			require.Equal(t, c, got)
		})
	}
}

// A timeout is rounded up to milliseconds, so that it is never less than asked for.
func TestEncodeRoundsTimeoutUp(t *testing.T) {
	b, err := Encode(Call{URL: "http://example.com", Timeout: time.Millisecond + 1})
	require.NoError(t, err)
	c, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, 2*time.Millisecond, c.Timeout)
}

func TestEncodeFormat(t *testing.T) {
	b, err := Encode(Call{Method: "GET", URL: "http://example.com/?a&b", Headers: map[string]string{"A": "b"}, Timeout: time.Second, Body: []byte("hi")})
	require.NoError(t, err)
	require.Equal(t, `{"v":1,"method":"GET","url":"http://example.com/?a&b","headers":{"A":"b"},"timeout_ms":1000,"text":"hi"}`, string(b))
	b, err = Encode(Call{URL: "http://example.com", Body: []byte{0, 1, 255}})
	require.NoError(t, err)
	require.Equal(t, `{"v":1,"url":"http://example.com","base64":"AAH/"}`, string(b))
}

func TestEncodeFitsIntoABody(t *testing.T) {
	_, err := Encode(Call{URL: "http://example.com", Body: bytes.Repeat([]byte("a"), store.MaxBody)})
	require.EqualError(t, err, "webhook: body is 65536 bytes long, must be shorter by 44: the encoded call has at most 65536 bytes")
	_, err = Encode(Call{URL: "http://example.com", Body: bytes.Repeat([]byte("a"), store.MaxBody+1)})
	require.EqualError(t, err, "webhook: body is 65537 bytes long, must be shorter by more than 1: the encoded call has at most 65536 bytes")
	_, err = Encode(Call{URL: "http://example.com", Body: bytes.Repeat([]byte("a"), store.MaxBody-43)})
	require.ErrorContains(t, err, "must be shorter by 1: ")
	b, err := Encode(Call{URL: "http://example.com", Body: bytes.Repeat([]byte("a"), store.MaxBody-44)})
	require.NoError(t, err)
	require.Len(t, b, store.MaxBody)
}

func TestCheckNamesFieldValueAndRange(t *testing.T) {
	with := func(name, value string) Call {
		return Call{URL: "http://example.com", Headers: map[string]string{name: value}}
	}
	many := map[string]string{}
	for i := range MaxHeaders + 1 {
		many["X-"+strings.Repeat("x", i+1)] = ""
	}
	for want, c := range map[string]Call{
		`webhook: url is "", must be an absolute URL with http or https`:                                       {},
		`webhook: url is "/path", must be an absolute URL with http or https`:                                  {URL: "/path"},
		`webhook: url is "file:///etc/passwd", must be an absolute URL with http or https`:                     {URL: "file:///etc/passwd"},
		`webhook: url is "gopher://example.com", must be an absolute URL with http or https`:                   {URL: "gopher://example.com"},
		`webhook: url is "http://", must be a URL with a host`:                                                 {URL: "http://"},
		`webhook: url is "http://:80", must be a URL with a host`:                                              {URL: "http://:80"},
		`webhook: url is "http://a:0", must be a URL with a port of 1 to 65535`:                                {URL: "http://a:0"},
		`webhook: url is "http://a:65536", must be a URL with a port of 1 to 65535`:                            {URL: "http://a:65536"},
		`webhook: url is "http://bücher.example", must be a URL whose host is`:                                 {URL: "http://bücher.example"},
		`webhook: url is "http://./", must be a URL whose host is`:                                             {URL: "http://./"},
		`webhook: url is "http://a!b", must be a URL whose host is`:                                            {URL: "http://a!b"},
		`webhook: url is "http://2130706433/", must be a URL whose host is`:                                    {URL: "http://2130706433/"},
		`webhook: url is "http://0x7f.1", must be a URL whose host is`:                                         {URL: "http://0x7f.1"},
		`webhook: url is "http://127.0.0.0X1", must be a URL whose host is`:                                    {URL: "http://127.0.0.0X1"},
		`webhook: url is "http://0177.0.0.1", must be a URL whose host is`:                                     {URL: "http://0177.0.0.1"},
		`webhook: url is "http://127.1.", must be a URL whose host is`:                                         {URL: "http://127.1."},
		`webhook: url is "http://127.0.0.256", must be a URL whose host is`:                                    {URL: "http://127.0.0.256"},
		`webhook: url is "http://1.2.3.4.5", must be a URL whose host is`:                                      {URL: "http://1.2.3.4.5"},
		`webhook: url is "http://a b", must be a URL`:                                                          {URL: "http://a b"},
		`webhook: url is "http://u:xxxxx@a", must be a URL without user and password; a header can carry them`: {URL: "http://u:secret@a"},
		`webhook: url is 2049 bytes long, must be at most 2048 bytes long`:                                     {URL: "http://a/" + strings.Repeat("a", 2040)},
		`webhook: method is "CONNECT", must be GET, POST, PUT, PATCH or DELETE`:                                {Method: "CONNECT", URL: "http://a"},
		`webhook: timeout is -1ns, must be 0s (the default) to 10m0s`:                                          {Timeout: -1, URL: "http://a"},
		`webhook: timeout is 10m0.000000001s, must be 0s (the default) to 10m0s`:                               {Timeout: MaxTimeout + 1, URL: "http://a"},
		`webhook: headers is 33 of them, must be at most 32`:                                                   {URL: "http://a", Headers: many},
		`webhook: headers is "", must be names of 1 to 128 letters`:                                            with("", ""),
		`webhook: headers is "a b", must be names of 1 to 128 letters`:                                         with("a b", ""),
		`webhook: headers is "a:b", must be names of 1 to 128 letters`:                                         with("a:b", ""),
		`webhook: headers is "host", must be names that the handler does not set itself`:                       with("host", "a"),
		`webhook: headers is "transfer-encoding", must be names that the handler does not set itself`:          with("transfer-encoding", "chunked"),
		`webhook: headers is "idempotency-key", must be names that the handler does not set itself`:            with("idempotency-key", "1"),
		`webhook: headers is "limbo-fence", must be names that the handler does not set itself`:                with("limbo-fence", "1"),
		`webhook: headers.A is "b\r\nHost: c", must be without control characters`:                             with("A", "b\r\nHost: c"),
		`webhook: headers.A is 4097 bytes long, must be at most 4096 bytes long`:                               with("A", strings.Repeat("b", MaxHeader+1)),
		`webhook: headers is "x-a", must be names that differ by more than case`:                               {URL: "http://a", Headers: map[string]string{"X-A": "1", "x-a": "2"}},
	} {
		err := c.Check()
		require.ErrorContains(t, err, want)
		var field *FieldError
		require.ErrorAs(t, err, &field)
		_, encoded := Encode(c)
		require.Equal(t, err, encoded)
	}
}

// JSON cannot carry bytes that are not UTF-8: they are refused, not altered. A body may have any
// bytes.
func TestInvalidUTF8(t *testing.T) {
	for _, bad := range []string{"\xff", "caf\xe9", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", strings.Repeat("a", 200) + "\x80"} {
		for want, c := range map[string]Call{
			`webhook: url is not valid UTF-8, must be valid UTF-8; percent encoding takes any bytes`: {URL: "http://a/" + bad},
			`webhook: headers.X-A is not valid UTF-8, must be valid UTF-8`:                           {URL: "http://a", Headers: map[string]string{"X-A": bad}},
			`webhook: headers is "`: {URL: "http://a", Headers: map[string]string{bad: "a"}},
		} {
			_, err := Encode(c)
			require.ErrorContains(t, err, want)
		}
		c := Call{URL: "http://a/ä?\ufffd", Headers: map[string]string{"X-A": "ä\ufffd"}, Body: []byte(bad)}
		b, err := Encode(c)
		require.NoError(t, err)
		got, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, c, got)
		_, err = Decode([]byte(`{"v":1,"url":"http://a","text":"` + bad + `"}`))
		require.EqualError(t, err, "webhook: text is not valid UTF-8, must be valid UTF-8; base64 takes any bytes")
	}
}

// A body is encoded as text or in base64, whichever is shorter, so that every body that can fit
// does.
func TestEncodeIsTheShorter(t *testing.T) {
	for _, c := range []string{
		"a", "ä", "€", "\U0001f600", "\u2028", "\u2029", "\ufffd", "\x00", "\x1f", "\b", "\f", "\n", "\r", "\t", " ", "/", `"`, "\\", "\x7f", "<", ">", "&",
		"\xff", "line of text\n", "a \u2028", "\u2028abcdefgh", "\u2029abcdefghijk", "\x00abcdefghijklm", "\x00abcdefghijklmno", `"a`, `""a`, `"abc`, "\n\n\n",
	} {
		for n := 1; n < 100; n++ {
			body := strings.Repeat(c, n)
			got, err := Encode(Call{URL: "http://a", Body: []byte(body)})
			require.NoError(t, err)
			var text bytes.Buffer
			enc := json.NewEncoder(&text)
			enc.SetEscapeHTML(false)
			require.NoError(t, enc.Encode(body))
			least := len(`"base64":""`) + base64.StdEncoding.EncodedLen(len(body))
			if utf8.ValidString(body) {
				least = min(least, len(`"text":`)+text.Len()-1)
			}
			require.Equal(t, len(`{"v":1,"url":"http://a",}`)+least, len(got), "%d times %q: %s", n, c, got)
		}
	}
	for _, c := range []string{"\u2028", "\u2029", "\n", "0123456789\n"} {
		body := []byte(strings.Repeat(c, 48_000/len(c)))
		b, err := Encode(Call{URL: "http://a", Body: body})
		require.NoError(t, err, "%q", c)
		got, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, body, got.Body)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for in, want := range map[string]string{
		``:                               "is no call",
		`hello`:                          "is no call",
		`[]`:                             "the timer's body is a JSON array, must be a JSON object",
		`{"v":1,"url":"http://a"} {}`:    "is no call: at byte 26 of it, invalid",
		`{"v":1,"url":"http://a","x":1}`: "x is a field, must be absent: there is no such field",
		`{"url":"http://a"}`:             "v is 0, must be 1",
		`{"v":2,"url":"http://a"}`:       "v is 2, must be 1",
		`{"v":1}`:                        `url is ""`,
		`{"v":1,"url":"ftp://a"}`:        `url is "ftp://a"`,
		`{"v":1,"url":"http://a","timeout_ms":-1}`:                  "timeout_ms is -1, must be 0 (the default) to 600000",
		`{"v":1,"url":"http://a","timeout_ms":9223372036854775807}`: "timeout_ms is 9223372036854775807, must be 0",
		`{"v":1,"url":"http://a","text":"a","base64":"YQ=="}`:       "must be absent beside text",
	} {
		_, err := Decode([]byte(in))
		require.ErrorContains(t, err, want, in)
	}
}

// Decode refuses input that encoding/json would alter, or of which it would take the last, and
// names the field.
func TestDecodeAltersNothing(t *testing.T) {
	for in, want := range map[string]string{
		`"text":"\ud800"`:                         "webhook: text is not valid UTF-8, must be valid UTF-8; base64 takes any bytes",
		`"method":"\udc00"`:                       "webhook: method is not valid UTF-8, must be valid UTF-8",
		`"headers":{"X":"\ud800"}`:                "webhook: headers.X is not valid UTF-8, must be valid UTF-8",
		`"headers":{"\ud800":"x"}`:                "webhook: a name in headers is not valid UTF-8, must be valid UTF-8",
		`"URL":"http://b"`:                        "webhook: URL is a field, must be absent: there is no such field",
		`"url":"http://b"`:                        "webhook: url is given twice, must be given once",
		`"headers":{"X":"1","X":"2"}`:             "webhook: headers.X is given twice, must be given once",
		`"headers":{"X":"1"},"headers":{"X":"1"}`: "webhook: headers is given twice, must be given once",
		`"timeout_ms":1.0`:                        "webhook: timeout_ms is 1.0, must be a whole number",
		`"timeout_ms":9223372036854775808`:        "webhook: timeout_ms is 9223372036854775808, must be a whole number",
		`"timeout_ms":"1"`:                        "webhook: timeout_ms is a JSON string, must be a JSON number",
	} {
		_, err := Decode([]byte(`{"v":1,"url":"http://a",` + in + `}`))
		require.EqualError(t, err, want, in)
		var field *FieldError
		require.ErrorAs(t, err, &field)
	}
}

// A decoded call can be encoded again, and decodes to the same call.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"url":"http://a","headers":{"A":"b"},"timeout_ms":1,"text":"\u0000"}`))
	f.Add([]byte(`{"v":1,"url":"https://a:1/?q","method":"GET","base64":"AAH/"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		encoded, err := Encode(c)
		if err != nil {
			require.ErrorContains(t, err, "body is") // it may be longer
			return
		}
		again, err := Decode(encoded)
		require.NoError(t, err)
		if len(c.Body) == 0 {
			c.Body = nil
		}
		if len(c.Headers) == 0 {
			c.Headers = nil
		}
		require.Equal(t, c, again)
	})
}
