package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// hidden replaces the value of a secret header.
const hidden = "(hidden)"

// hideSecrets replaces the values of secret headers in JSON, and reports whether there were any. It
// returns text that is not JSON unchanged.
func hideSecrets(text string) (string, bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // numbers stay as they were written
	var v any
	if d.Decode(&v) != nil {
		return text, false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return text, false
	}
	if !hideIn(v) {
		return text, false
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if e.Encode(v) != nil {
		return hidden, true
	}
	return strings.TrimSuffix(b.String(), "\n"), true
}

func hideIn(v any) (found bool) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			found = hideIn(one) || found
		}
	case map[string]any:
		for name, value := range v {
			if headers, ok := value.(map[string]any); ok && strings.EqualFold(name, "headers") {
				for header := range headers {
					if isSecret(header) {
						headers[header], found = hidden, true
					}
				}
			}
			found = hideIn(value) || found
		}
	}
	return found
}

// isSecret reports whether the value of a header is hidden.
func isSecret(header string) bool {
	header = strings.ToLower(header)
	return slices.Contains([]string{"authorization", "proxy-authorization", "cookie", "set-cookie"}, header) ||
		slices.ContainsFunc([]string{"token", "secret", "password", "api-key", "apikey", "access-key"}, func(end string) bool {
			return strings.HasSuffix(header, end)
		})
}
