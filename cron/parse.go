package cron

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Spec is a parsed cron spec, returned by [Parse]. Specs with the same text are equal by ==. The
// zero Spec never matches.
type Spec struct {
	text    string
	minutes uint64 // bit n: minute n
	hours   uint32 // bit n: hour n
	days    uint32 // bit n: day n of the month, from 1
	months  uint16 // bit n: month n, from 1
	week    uint8  // bit n: day n of the week, from 0 for Sunday

	eitherDay bool // a day matches if days or week contains it; false: both must contain it
	elapsed   bool // the spec follows elapsed time; false: it has fixed hours
}

// String returns the parsed text, or "" for the zero Spec.
func (s Spec) String() string { return s.text }

const maxText = 256

var (
	monthNames = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	dayNames   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// field describes the allowed values of one field.
type field struct {
	position int // from 1
	name     string
	min, max int
	last     int // the last value of *: max, or 6 where 7 is another name for 0
	names    []string
}

var fields = [...]field{
	{1, "minute", 0, 59, 59, nil},
	{2, "hour", 0, 23, 23, nil},
	{3, "day of month", 1, 31, 31, nil},
	{4, "month", 1, 12, 12, monthNames},
	{5, "day of week", 0, 7, 6, dayNames},
}

var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// Parse parses a spec of at most 256 bytes; the package comment has the syntax. It takes some
// microseconds.
//
// The error names the field, its position, the value, and the allowed values: cron: field 2
// (hour) is "25", must be 0 to 23. A spec that never matches, such as "0 0 30 2 *", is also an
// error.
func Parse(spec string) (Spec, error) {
	if len(spec) > maxText {
		return Spec{}, fmt.Errorf("cron: a spec has %d bytes, must be at most %d", len(spec), maxText)
	}
	texts, err := split(spec)
	if err != nil {
		return Spec{}, err
	}
	var sets [len(fields)]uint64
	for i := range fields {
		if sets[i], err = fields[i].parse(texts[i]); err != nil {
			return Spec{}, err
		}
	}
	s := Spec{
		text:      spec,
		minutes:   sets[0],
		hours:     uint32(sets[1]),
		days:      uint32(sets[2]),
		months:    uint16(sets[3]),
		week:      uint8(sets[4]&0x7f | sets[4]>>7), // 7 is Sunday
		eitherDay: !beginsWithStar(texts[2]) && !beginsWithStar(texts[4]),
		elapsed:   beginsWithStar(texts[1]) && !strings.Contains(texts[1], ","),
	}
	if s.never() {
		return Spec{}, fmt.Errorf("cron: %q never matches: no month in field 4 (month) has a day in field 3 (day of month)", spec)
	}
	return s, nil
}

// split returns the five fields of a spec.
func split(spec string) ([]string, error) {
	texts := strings.Fields(spec)
	if len(texts) > 0 {
		first := strings.ToLower(texts[0])
		switch {
		case strings.HasPrefix(first, "tz=") || strings.HasPrefix(first, "cron_tz="):
			return nil, fmt.Errorf("cron: a spec begins with %q, must be without a zone: the zone is a value of its own, see Spec.In", texts[0])
		case first == "@every":
			return nil, fmt.Errorf("cron: %q is not a spec: use Every", spec)
		case first[0] == '@':
			expanded, ok := descriptors[first]
			if !ok || len(texts) > 1 {
				return nil, fmt.Errorf("cron: %q is unknown, must be five fields, @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly", spec)
			}
			texts = strings.Fields(expanded)
		}
	}
	if len(texts) == len(fields) {
		return texts, nil
	}
	hint := ""
	if len(texts) == len(fields)+1 {
		hint = "; there is none for seconds or years"
	}
	return nil, fmt.Errorf("cron: %q has %d fields, must have 5: minute, hour, day of month, month, day of week%s", spec, len(texts), hint)
}

func beginsWithStar(text string) bool { return text[0] == '*' || text[0] == '?' }

// parse returns the set of a field's values: bit n is set for a value n.
func (f *field) parse(text string) (set uint64, err error) {
	for element := range strings.SplitSeq(text, ",") {
		values, step, stepped := strings.Cut(element, "/")
		first, last, err := f.span(values, stepped)
		if err != nil {
			return 0, f.fail(text, values, err)
		}
		n := 1
		if count := f.last - f.min + 1; stepped {
			if n, err = strconv.Atoi(step); err != nil || step[0] == '+' || n < 1 || n > count {
				return 0, f.fail(text, element, fmt.Errorf("the step must be 1 to %d", count))
			}
		}
		for v := first; v <= last; v += n {
			set |= 1 << v
		}
	}
	return set, nil
}

func (f *field) fail(text, part string, err error) error {
	verb := "is"
	if part != text {
		verb = "has"
	}
	return fmt.Errorf("cron: field %d (%s) %s %q, %w", f.position, f.name, verb, part, err)
}

// span returns the first and the last value of an element without its step.
func (f *field) span(values string, stepped bool) (first, last int, err error) {
	if values == "*" || values == "?" {
		return f.min, f.last, nil
	}
	from, to, ranged := strings.Cut(values, "-")
	first, ok := f.value(from)
	last = first
	switch {
	case ranged:
		var valid bool
		last, valid = f.value(to)
		ok = ok && valid
	case stepped:
		last = max(first, f.last)
	}
	if !ok {
		return 0, 0, f.outside(values)
	}
	if first > last {
		return 0, 0, fmt.Errorf("whose start exceeds its end: use two ranges, such as %d-%d,%d-%d", first, f.last, f.min, last)
	}
	return first, last, nil
}

// value returns the value of a number or a name.
func (f *field) value(text string) (int, bool) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, true
		}
	}
	v, err := strconv.ParseUint(text, 10, 8)
	return int(v), err == nil && int(v) >= f.min && int(v) <= f.max
}

// outside returns the error for values outside the field's range.
func (f *field) outside(values string) error {
	daysOfMonthOrWeek := f.max == 31 || f.max == 7
	if daysOfMonthOrWeek && (strings.Contains(values, "#") || values != "" && strings.Trim(strings.ToUpper(values), "0123456789-LW") == "" && strings.ContainsAny(values, "LlWw")) {
		return errors.New("but L, W and # are not supported: name more days, and check the date when the function runs")
	}
	if f.names != nil {
		return fmt.Errorf("must be %d to %d or %s to %s", f.min, f.max, f.names[0], f.names[len(f.names)-1])
	}
	return fmt.Errorf("must be %d to %d", f.min, f.max)
}

// never reports whether no date matches. Within 40 years, each date, including 29 February,
// falls on each day of the week.
func (s Spec) never() bool {
	if s.eitherDay {
		return false
	}
	for m := 1; m <= 12; m++ {
		const leapYear = 2000
		if s.months>>m&1 != 0 && s.days&(1<<(daysIn(leapYear, m)+1)-1) != 0 {
			return false
		}
	}
	return true
}

// Warning returns advice if the spec runs each minute of certain hours, which is rarely
// intended, and "" otherwise. "* 0 * * *" runs 60 times a night.
func (s Spec) Warning() string {
	const everyMinute, everyHour = 1<<60 - 1, 1<<24 - 1
	if s.minutes != everyMinute || s.hours == everyHour {
		return ""
	}
	if n := bits.OnesCount32(s.hours); n > 1 {
		return fmt.Sprintf("runs every minute of %d hours, %d times a day; for one run an hour give field 1 (minute) one value, such as 0", n, 60*n)
	}
	return fmt.Sprintf("runs every minute of hour %d, 60 times; for one run give field 1 (minute) one value, such as 0", bits.TrailingZeros32(s.hours))
}
