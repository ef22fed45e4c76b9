package longpoll

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const none int64 = -1 // no wait found

func wanted(headers ...string) int64 {
	if seconds, ok := preferredWait(headers); ok {
		return int64(seconds)
	}
	return none
}

func TestPreferredWait(t *testing.T) {
	for header, want := range map[string]int64{
		"":                           none,
		",":                          none,
		"wait=5":                     5,
		" \twait =\t5 ":              5,
		"WAIT=5":                     5,
		"wait=05":                    5,
		`wait="5"`:                   5,
		`wait="\5"`:                  5,
		"wait=5;":                    5,
		"wait=5 ; ;x=y;z":            5,
		`wait=5;x="\";, wait=6"`:     5,
		", ,wait=5":                  5,
		"wait=5,wait=6":              5,
		"wait=x,wait=6":              none, // the first one counts
		"wait,wait=6":                none,
		`wait="",wait=6`:             none,
		"x;wait=5":                   none, // a parameter
		"x=wait,wait=5":              5,
		`foo="a, wait=5"`:            none,
		`foo; bar="x, wait=5, y"`:    none,
		`foo="a\", wait=3", wait=7`:  7,
		`foo="a\\", wait=3, wait=7`:  3,
		`foo="a\\\", wait=3, wait=7`: none,
		`"wait"=5`:                   none,
		`wait="5`:                    none,
		`wait=5"`:                    none,
		`wait=""5""`:                 none,
		`wait="5"6`:                  none,
		`wait="5\`:                   none,
		"wait='5'":                   none,
		"wait==5":                    none,
		"wait=5=6":                   none,
		"wait=5 6":                   none,
		"wait=5;=":                   none,
		"wait=5;x=":                  none,
		"wait=+5":                    none,
		"wait=-5":                    none,
		"wait=5.0":                   none,
		"wait=5s":                    none,
		"wait=\x00":                  none,
		"wait=\"5\x7f\"":             none,
		"wait\u00a0=5":               none,
		"wait=\u0665":                none,
		"a b, wait=5":                5, // malformed preferences are skipped
		`a"b, wait=5`:                none,
		`a"b", wait=5`:               5,
		`wait="5\", wait=6`:          none,
		"wait=5;x=\"\t\"":            5,
		"wait=5;x=\"\x01\"":          none,
		"wait=5;x=\"\x1f\"":          none,
		"wait=5;x=\" ~\"":            5,
		"wait=7000000000x":           none,
		"wait=4294967295":            math.MaxUint32,
		"wait=4294967296":            math.MaxUint32,
	} {
		require.Equal(t, want, wanted(header), "%q", header)
	}
	require.Equal(t, none, wanted())
	require.EqualValues(t, 5, wanted("x", "wait=5", "wait=6"))
	require.EqualValues(t, 5, wanted(`x="`, "wait=5", `"`), "a string ends with its header")
}

// The grammar of RFC 7240, section 2, with the strings of RFC 9110, section 5.6.4.
var (
	oracleToken = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	oracleChar  = `[^"\\\x00-\x08\x0a-\x1f\x7f]`
	oracleText  = `"(?:` + oracleChar + `|\\(?:` + oracleChar + `|["\\]))*"`
	oracleParam = fmt.Sprintf(`(%s)(?:[ \t]*=[ \t]*(%s|%s))?`, oracleToken, oracleToken, oracleText)

	oraclePreference = regexp.MustCompile(`^[ \t]*` + oracleParam + `(?:[ \t]*;(?:[ \t]*` + oracleParam + `)?)*[ \t]*$`)
	oracleElement    = regexp.MustCompile(`(?s)^(?:[^",]|"(?:[^"\\]|\\.)*(?:"|\\?$))*`)
	oracleEscape     = regexp.MustCompile(`(?s)\\(.)`)
)

// oracle returns the value that wanted must return for one header.
func oracle(header string) int64 {
	for {
		element := oracleElement.FindString(header)
		if m := oraclePreference.FindStringSubmatch(element); m != nil && strings.EqualFold(m[1], "wait") {
			value := m[2]
			if strings.HasPrefix(value, `"`) {
				value = oracleEscape.ReplaceAllString(value[1:len(value)-1], "$1")
			}
			if strings.Trim(value, "0123456789") != "" || value == "" {
				return none
			}
			seconds, _ := strconv.ParseFloat(value, 64)
			return int64(min(seconds, math.MaxUint32))
		}
		if len(element) == len(header) {
			return none
		}
		header = header[len(element)+1:]
	}
}

func FuzzPreferredWait(f *testing.F) {
	for _, s := range []string{"wait=3", `x, wait="4";y`, "wait=,", "=", "wait=18446744073709551616", `a="\",", wait ="\5" ; b = "c";;d, wait=6`, "\xff\"\\\xff\", wait=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := wanted(s), oracle(s); got != want {
			t.Fatalf("%q: %d, want %d", s, got, want)
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return
		}
		// Neither a quoted string nor the text after another preference's name is read as a
		// preference.
		quoted := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(s) + `"`
		for _, header := range []string{"x=%s, wait=7", "x; wait=%s, wait=7", "wait=7; x=%s", `wait="7" , wait=%s`} {
			if header = fmt.Sprintf(header, quoted); wanted(header) != 7 {
				t.Fatalf("%q: %d, want 7", header, wanted(header))
			}
		}
	})
}
