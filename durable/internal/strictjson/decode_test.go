package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// all has one field of each kind.
type all struct {
	Inner
	Base64 []byte            `json:"base64"`
	Yes    bool              `json:"yes"`
	In     *Inner            `json:"in"`
	Texts  map[string]string `json:"texts" max:"2"`
	Rows   rows              `json:"rows"`
}

type Inner struct {
	Text string `json:"text" utf8:" (or base64)"`
	N    int64  `json:"n"`
}

type rows = func(int, *Inner) error

// decode returns the rows apart from the rest.
func decode(in string) (got all, read []Inner, err error) {
	got.Rows = func(i int, v *Inner) error {
		if i == 3 {
			return errors.New("the fourth row")
		}
		read = append(read, *v)
		return nil
	}
	err = Decode([]byte(in), "the request", &got)
	got.Rows = nil
	return got, read, err
}

func TestDecode(t *testing.T) {
	for in, want := range map[string]all{
		`{}`:   {},
		`null`: {},
		` { "text" : "a\u00e4\ud83d\ude00\n" , "base64":"AAE=","yes":true,"n":-12 } `: {Inner: Inner{"aä😀\n", -12}, Base64: []byte{0, 1}, Yes: true},
		`{"in":{"n":9223372036854775807},"n":-9223372036854775808}`:                   {Inner: Inner{N: -1 << 63}, In: &Inner{N: 1<<63 - 1}},
		`{"in":null,"text":null,"base64":null,"yes":null,"n":null,"texts":null}`:      {},
		`{"in":{},"yes":false,"texts":{},"rows":[]}`:                                  {In: &Inner{}},
		`{"texts":{"a":"1","":"2"}}`:                                                  {Texts: map[string]string{"a": "1", "": "2"}},
		`{"text":"\\ud800 \"\/"}`:                                                     {Inner: Inner{Text: `\ud800 "/`}},
	} {
		got, rows, err := decode(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
		require.Empty(t, rows)
	}
	_, rows, err := decode(`{"rows":[{"n":1},{},null]}`)
	require.NoError(t, err)
	require.Equal(t, []Inner{{N: 1}, {}, {}}, rows)
}

// An error gives the field, its value and the allowed values.
func TestErrors(t *testing.T) {
	for in, want := range map[string]string{
		`[]`:                              "the request is a JSON array, must be a JSON object",
		`7`:                               "the request is a JSON number, must be a JSON object",
		`true`:                            "the request is a JSON boolean, must be a JSON object",
		`{"N":1}`:                         "N is a field, must be absent: there is no such field",
		`{"":1}`:                          " is a field, must be absent: there is no such field",
		`{"Inner":1}`:                     "Inner is a field, must be absent: there is no such field",
		`{"n":1,"n":1}`:                   "n is given twice, must be given once",
		`{"n":1,"\u006e":1}`:              "n is given twice, must be given once",
		`{"n":01}`:                        "n is 01, must be a whole number",
		`{"n":1.0}`:                       "n is 1.0, must be a whole number",
		`{"n":-0}`:                        "n is -0, must be a whole number",
		`{"n":"1"}`:                       "n is a JSON string, must be a JSON number",
		`{"n":9223372036854775808}`:       "n is 9223372036854775808, must be a whole number",
		`{"yes":1}`:                       "yes is a JSON number, must be a JSON boolean",
		`{"text":{}}`:                     "text is a JSON object, must be a JSON string",
		"{\"text\":\"\xff\"}":             "text is not valid UTF-8, must be valid UTF-8 (or base64)",
		`{"text":"\ud800"}`:               "text is not valid UTF-8, must be valid UTF-8 (or base64)",
		`{"text":"\ud800\u0041"}`:         "text is not valid UTF-8, must be valid UTF-8 (or base64)",
		"{\"\xff\":1}":                    "a name in the request is not valid UTF-8, must be valid UTF-8",
		`{"base64":"A"}`:                  `base64 is "A", must be base64`,
		`{"in":[]}`:                       "in is a JSON array, must be a JSON object",
		`{"in":{"n":"2"}}`:                "in.n is a JSON string, must be a JSON number",
		`{"in":{"text":"\ud800"}}`:        "in.text is not valid UTF-8, must be valid UTF-8 (or base64)",
		`{"in":{"else":1}}`:               "in.else is a field, must be absent: there is no such field",
		`{"in":{"n":1,"n":1}}`:            "in.n is given twice, must be given once",
		"{\"in\":{\"\xff\":1}}":           "a name in in is not valid UTF-8, must be valid UTF-8",
		`{"rows":{}}`:                     "rows is a JSON object, must be a JSON array",
		`{"rows":[{"n":1},7]}`:            "rows[1] is a JSON number, must be a JSON object",
		`{"rows":[{"n":1},{"n":""}]}`:     "rows[1].n is a JSON string, must be a JSON number",
		`{"rows":[{},{},{},{},7]}`:        "the fourth row",
		`{"in":{},"else":1}`:              "else is a field, must be absent: there is no such field",
		`{"texts":[]}`:                    "texts is a JSON array, must be a JSON object",
		`{"texts":{"a":1}}`:               "texts.a is a JSON number, must be a JSON string",
		`{"texts":{"a":"","a":""}}`:       "texts.a is given twice, must be given once",
		`{"texts":{"a":"","b":"","c":1}}`: "texts is more than 2 of them, must be at most 2",
	} {
		_, _, err := decode(in)
		assert.EqualError(t, err, want, in)
		var field *FieldError
		assert.Equal(t, want != "the fourth row", errors.As(err, &field), in)
	}
}

// The error of a text that is not JSON has the place of the error.
func TestSyntax(t *testing.T) {
	for in, want := range map[string]int64{
		``:                    0,
		`nil`:                 2,
		`{`:                   1,
		`{"n":1,}`:            8,
		`{n:1}`:               2,
		`{"n" 1}`:             6,
		`{"n":1 "yes":true}`:  8,
		`{"n":1`:              6,
		`{"n":1}{}`:           8,
		`{"n":1}x`:            8,
		`{"text":"a}`:         11,
		`{"text":"a\"}`:       13,
		"{\"text\":\"\x01\"}": 10,
		`{"text":"\x"}`:       11,
		`{"rows":[{} {}]}`:    13,
		`{"rows":[{},]}`:      13,
		`{"n":1]`:             7,
		`{"yes":tru}`:         11,
		`{"yes":}`:            8,
		`{"in":nul}`:          10,
		`{"in":{"n":1`:        12,
		`{"n"`:                4,
		`{"text":"`:           9,
		`{"text":"\`:          10,
		`{"n`:                 3,
	} {
		_, _, err := decode(in)
		var syntax *json.SyntaxError
		require.ErrorAs(t, err, &syntax, in)
		require.InDelta(t, want, syntax.Offset, 2, in) // Go versions differ in it
		require.EqualError(t, err, fmt.Sprintf("at byte %d of it, %v", syntax.Offset, syntax))
	}
}
