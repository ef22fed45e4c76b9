package longpoll

import (
	"strconv"
	"strings"
)

// preferredWait finds wait in Prefer headers, which are lists of preferences. The first wait
// counts. Malformed preferences are skipped.
func preferredWait(headers []string) (seconds uint32, ok bool) {
	for _, header := range headers {
		for header != "" {
			var element string
			element, header = cutElement(header)
			name, value, ok := preference(element)
			if !ok || !strings.EqualFold(name, "wait") {
				continue
			}
			if value == "" || strings.Trim(value, "0123456789") != "" {
				return 0, false
			}
			n, _ := strconv.ParseUint(value, 10, 32) // out of range: the largest value
			return uint32(n), true
		}
	}
	return 0, false
}

// cutElement splits a list after its first element. A comma in a quoted string does not
// separate.
func cutElement(list string) (element, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

// preference parses a preference of RFC 7240, section 2: a name and a value, and parameters of
// the same form, each of which may be missing.
func preference(element string) (name, value string, ok bool) {
	s := scanner{element}
	s.space()
	if name, value, ok = s.parameter(); !ok {
		return "", "", false
	}
	for s.take(';') {
		s.space()
		if s.rest == "" || s.rest[0] == ';' {
			continue
		}
		if _, _, ok = s.parameter(); !ok {
			return "", "", false
		}
	}
	return name, value, s.rest == ""
}

// scanner reads the elements of headers: RFC 9110, section 5.6.
type scanner struct{ rest string }

func (s *scanner) space() { s.rest = strings.TrimLeft(s.rest, " \t") }

// take consumes c, if it is the next character.
func (s *scanner) take(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// parameter reads a token, a value if there is one, and the space after it.
func (s *scanner) parameter() (name, value string, ok bool) {
	name, ok = s.token()
	s.space()
	if ok && s.take('=') {
		s.space()
		value, ok = s.word()
		s.space()
	}
	return name, value, ok
}

// word reads a token or a quoted string.
func (s *scanner) word() (string, bool) {
	if s.take('"') {
		return s.quoted()
	}
	return s.token()
}

func (s *scanner) token() (string, bool) {
	n := 0
	for n < len(s.rest) && isTokenByte(s.rest[n]) {
		n++
	}
	token := s.rest[:n]
	s.rest = s.rest[n:]
	return token, n > 0
}

// quoted reads a quoted string after its first quote.
func (s *scanner) quoted() (string, bool) {
	var text []byte
	for i := 0; i < len(s.rest); i++ {
		c := s.rest[i]
		if c == '"' {
			s.rest = s.rest[i+1:]
			return string(text), true
		}
		if c == '\\' {
			if i++; i == len(s.rest) {
				break
			}
			c = s.rest[i]
		}
		if c < ' ' && c != '\t' || c == 0x7f {
			break
		}
		text = append(text, c)
	}
	return "", false
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
