package strictjson

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// all has one field of each kind.
type all struct {
	text   string
	base64 []byte
	yes    bool
	n      int64
	inner  []int64
	rows   []int64
}

func (a *all) read(r *Reader) error {
	err := r.Object("", func(name string) error {
		switch name {
		case "text":
			return r.Text("text", &a.text, " (or base64)")
		case "base64":
			return r.Base64("base64", &a.base64)
		case "yes":
			return r.Bool("yes", &a.yes)
		case "n":
			return r.Int("n", &a.n)
		case "in":
			return r.Object("in", func(name string) error {
				if name != "list" {
					return r.Unknown(name)
				}
				return r.Array("list", func(int) error {
					a.inner = append(a.inner, 0)
					return r.Int("list[]", &a.inner[len(a.inner)-1])
				})
			})
		case "rows":
			return r.Array("rows", func(int) error {
				return r.Object("rows[]", func(name string) error {
					if name != "n" {
						return r.Unknown(name)
					}
					a.rows = append(a.rows, 0)
					return r.Int("n", &a.rows[len(a.rows)-1])
				})
			})
		}
		return r.Unknown(name)
	})
	if err != nil {
		return err
	}
	return r.End()
}

func TestReads(t *testing.T) {
	for in, want := range map[string]all{
		`{}`:   {},
		`null`: {},
		` { "text" : "a\u00e4\ud83d\ude00\n" , "base64":"AAE=","yes":true,"n":-12 } `: {text: "aä😀\n", base64: []byte{0, 1}, yes: true, n: -12},
		`{"in":{"list":[1,0,9223372036854775807]},"n":-9223372036854775808}`:          {n: -1 << 63, inner: []int64{1, 0, 1<<63 - 1}},
		`{"in":{"list":[]},"text":null,"base64":null,"yes":null,"n":null}`:            {base64: []byte{}},
		`{"in":{"list":[null]},"yes":false}`:                                          {inner: []int64{0}},
		`{"rows":[{"n":1},{},null,{"n":2}]}`:                                          {rows: []int64{1, 2}},
		`{"text":"\\ud800 \"\/"}`:                                                     {text: `\ud800 "/`},
	} {
		var got all
		require.NoError(t, got.read(New([]byte(in), "the request")), in)
		require.Equal(t, want, got, in)
	}
}

// An error gives the field, its value and the allowed values.
func TestErrors(t *testing.T) {
	for in, want := range map[string]string{
		``:                            "at byte 0 of it, it ends",
		`[]`:                          "the request is a JSON array, must be a JSON object",
		`7`:                           "the request is a JSON number, must be a JSON object",
		`true`:                        "the request is a JSON boolean, must be a JSON object",
		`nil`:                         "at byte 0 of it, there is no JSON value",
		`{`:                           "at byte 1 of it, a name in quotes is missing",
		`{"n":1,}`:                    "at byte 7 of it, a name in quotes is missing",
		`{n:1}`:                       "at byte 1 of it, a name in quotes is missing",
		`{"n" 1}`:                     "at byte 5 of it, a colon is missing",
		`{"n":1 "yes":true}`:          "at byte 7 of it, a comma or } is missing",
		`{"n":1`:                      "at byte 6 of it, a comma or } is missing",
		`{"n":1}{}`:                   "at byte 7 of it, there is more after the JSON object",
		`{"N":1}`:                     "N is a field, must be absent: there is no such field",
		`{"n":1,"n":1}`:               "n is given twice, must be given once",
		`{"n":1,"\u006e":1}`:          "n is given twice, must be given once",
		`{"n":01}`:                    "n is 01, must be a whole number",
		`{"n":1.0}`:                   "n is 1.0, must be a whole number",
		`{"n":-0}`:                    "n is -0, must be a whole number",
		`{"n":"1"}`:                   "n is a JSON string, must be a JSON number",
		`{"n":9223372036854775808}`:   "n is 9223372036854775808, must be a whole number",
		`{"yes":1}`:                   "yes is a JSON number, must be a JSON boolean",
		`{"text":{}}`:                 "text is a JSON object, must be a JSON string",
		`{"text":"a}`:                 "at byte 8 of it, a string does not end",
		`{"text":"a\"}`:               "at byte 8 of it, a string does not end",
		"{\"text\":\"\x01\"}":         "at byte 8 of it, a string has a control character",
		`{"text":"\x"}`:               "at byte 8 of it, a string has an escape that JSON does not have",
		"{\"text\":\"\xff\"}":         "text is not valid UTF-8, must be valid UTF-8 (or base64)",
		`{"text":"\ud800"}`:           "text is not valid UTF-8, must be valid UTF-8 (or base64)",
		`{"text":"\ud800\u0041"}`:     "text is not valid UTF-8, must be valid UTF-8 (or base64)",
		"{\"\xff\":1}":                "a name in the request is not valid UTF-8, must be valid UTF-8",
		`{"base64":"A"}`:              `base64 is "A", must be base64`,
		`{"in":{"list":[1,"2"]}}`:     "in.list[] is a JSON string, must be a JSON number",
		`{"in":{"list":[1 2]}}`:       "at byte 17 of it, a comma or ] is missing",
		`{"in":{"list":[1,]}}`:        "at byte 17 of it, there is no JSON value",
		`{"in":{"list":{}}}`:          "in.list is a JSON object, must be a JSON array",
		`{"in":{"else":1}}`:           "in.else is a field, must be absent: there is no such field",
		"{\"in\":{\"\xff\":1}}":       "a name in in is not valid UTF-8, must be valid UTF-8",
		`{"rows":[{"n":1},7]}`:        "rows[] is a JSON number, must be a JSON object",
		`{"rows":[{"n":1},{"n":""}]}`: "rows[].n is a JSON string, must be a JSON number",
		`{"n`:                         "at byte 1 of it, a string does not end",
		`{"in":{},"else":1}`:          "else is a field, must be absent: there is no such field",
		`{"in":{"list":[]},"else":1}`: "else is a field, must be absent: there is no such field",
	} {
		var got all
		err := got.read(New([]byte(in), "the request"))
		assert.EqualError(t, err, want, in)
		var field *FieldError
		var syntax *SyntaxError
		assert.True(t, errors.As(err, &field) || errors.As(err, &syntax), in)
	}
}

// Texts reads at most as many texts as allowed, and names the object in its errors.
func TestTexts(t *testing.T) {
	for body, want := range map[string]string{
		`{"o":{"a":"1","b":"2"}}`:         "",
		`{"o":null}`:                      "",
		`{"o":{"a":"1","b":"2","c":"3"}}`: "o is more than 2 of them, must be at most 2",
		`{"o":{"a":1}}`:                   "o.a is a JSON number, must be a JSON string",
	} {
		var got map[string]string
		r := New([]byte(body), "the body")
		err := r.Object("", func(name string) error { return r.Texts(name, 2, &got) })
		if want != "" {
			require.EqualError(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, r.End())
		require.Contains(t, []map[string]string{nil, {"a": "1", "b": "2"}}, got)
	}
}
