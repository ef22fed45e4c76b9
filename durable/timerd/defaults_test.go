package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// README.md's table of flags has their defaults.
func TestDefaultsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var usage bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-h"}, noEnv, nil, &usage))
	defaults := map[string]string{} // of the flags that are not zero
	value := regexp.MustCompile(`\(default "?([^)"]*)"?\)\n$`)
	for _, text := range strings.Split(usage.String(), "\n  -")[1:] {
		name := regexp.MustCompile(`^[a-z-]+`).FindString(text)
		defaults[name] = ""
		if m := value.FindStringSubmatch(text + "\n"); m != nil {
			defaults[name] = m[1]
		}
	}
	require.Equal(t, "127.0.0.1:7717", defaults["listen"])
	seen := 0
	for _, row := range regexp.MustCompile("(?m)^\\| (`-[^|]*) \\| *([^|]*?) *\\|").FindAllStringSubmatch(string(page), -1) {
		names, values := strings.Split(row[1], ", "), strings.Split(row[2], ", ")
		for i, name := range names {
			name = strings.Trim(name, "`-")
			want, ok := defaults[name]
			require.True(t, ok, name)
			seen++
			if want == "" { // the column may say what happens, or be empty
				continue
			}
			got := strings.Trim(values[i], "`")
			require.Equal(t, short(want), short(got), "-%s", name)
		}
	}
	require.Greater(t, seen, 30)
}

// short is a duration as people write it: 10m, not 10m0s.
func short(s string) string {
	return strings.TrimSuffix(s, "m0s") + strings.Repeat("m", strings.Count(s, "m0s"))
}
