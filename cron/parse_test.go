package cron

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"60 * * * *":      `cron: field 1 (minute) is "60", must be 0 to 59`,
		"0 25 * * *":      `cron: field 2 (hour) is "25", must be 0 to 23`,
		"0 1,25 * * *":    `cron: field 2 (hour) has "25", must be 0 to 23`,
		"0 0 0 * *":       `cron: field 3 (day of month) is "0", must be 1 to 31`,
		"0 0 1 13 *":      `cron: field 4 (month) is "13", must be 1 to 12 or jan to dec`,
		"0 0 1 sun *":     `cron: field 4 (month) is "sun", must be 1 to 12 or jan to dec`,
		"0 0 * * 8":       `cron: field 5 (day of week) is "8", must be 0 to 7 or sun to sat`,
		"0 0 * * mon,fry": `cron: field 5 (day of week) has "fry", must be 0 to 7 or sun to sat`,
		"-5 * * * *":      `cron: field 1 (minute) is "-5", must be 0 to 59`,
		"+5 * * * *":      `cron: field 1 (minute) is "+5", must be 0 to 59`,
		"1-99/5 * * * *":  `cron: field 1 (minute) has "1-99", must be 0 to 59`,
		"1,,2 * * * *":    `cron: field 1 (minute) has "", must be 0 to 59`,
		"1-2-3 * * * *":   `cron: field 1 (minute) is "1-2-3", must be 0 to 59`,
		"*/0 * * * *":     `cron: field 1 (minute) is "*/0", the step must be 1 to 60`,
		"5,*/61 * * * *":  `cron: field 1 (minute) has "*/61", the step must be 1 to 60`,
		"*/+5 * * * *":    `cron: field 1 (minute) is "*/+5", the step must be 1 to 60`,
		"*/ * * * *":      `cron: field 1 (minute) is "*/", the step must be 1 to 60`,
		"*/5/5 * * * *":   `cron: field 1 (minute) is "*/5/5", the step must be 1 to 60`,
		"0 0 * * */8":     `cron: field 5 (day of week) is "*/8", the step must be 1 to 7`,
		"0 22-2 * * *":    `cron: field 2 (hour) is "22-2", whose start exceeds its end: use two ranges, such as 22-23,0-2`,
		"0 0 L * *":       `cron: field 3 (day of month) is "L", but L, W and # are not supported: name more days, and check the date when the function runs`,
		"0 0 15w * *":     `cron: field 3 (day of month) is "15w", but L, W and # are not supported: name more days, and check the date when the function runs`,
		"0 0 * * fri#2":   `cron: field 5 (day of week) is "fri#2", but L, W and # are not supported: name more days, and check the date when the function runs`,
		"0 0 * * 5L":      `cron: field 5 (day of week) is "5L", but L, W and # are not supported: name more days, and check the date when the function runs`,
		"":                `cron: "" has 0 fields, must have 5: minute, hour, day of month, month, day of week`,
		"0 0 * *":         `cron: "0 0 * *" has 4 fields, must have 5: minute, hour, day of month, month, day of week`,
		"0 0 0 * * *":     `cron: "0 0 0 * * *" has 6 fields, must have 5: minute, hour, day of month, month, day of week; there is none for seconds or years`,
		"@reboot":         `cron: "@reboot" is unknown, must be five fields, @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly`,
		"@daily 5":        `cron: "@daily 5" is unknown, must be five fields, @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly`,
		"@every 5m":       `cron: "@every 5m" is not a spec: use Every`,

		"TZ=Asia/Tokyo 0 0 * * *":      `cron: a spec begins with "TZ=Asia/Tokyo", must be without a zone: the zone is a value of its own, see Spec.In`,
		"CRON_TZ=Asia/Tokyo 0 0 * * *": `cron: a spec begins with "CRON_TZ=Asia/Tokyo", must be without a zone: the zone is a value of its own, see Spec.In`,
		"0 0 30 2 *":                   `cron: "0 0 30 2 *" never matches: no month in field 4 (month) has a day in field 3 (day of month)`,
		"0 0 31 4,6,9,11 *":            `cron: "0 0 31 4,6,9,11 *" never matches: no month in field 4 (month) has a day in field 3 (day of month)`,
		strings.Repeat(" ", 257):       `cron: a spec has 257 bytes, must be at most 256`,
	} {
		s, err := Parse(spec)
		require.EqualError(t, err, want)
		require.Zero(t, s)
	}
}

// The specs of one line have the same times.
func TestParseAlike(t *testing.T) {
	t.Parallel()
	for _, alike := range [][]string{
		{"0 0 1 1 *", "@yearly", "@annually", "@YEARLY", "0 0 1 JAN ?", " 00\t00 01 01 * "},
		{"0 0 1 * *", "@monthly"},
		{"0 0 * * 0", "@weekly", "0 0 * * 7", "0 0 * * sun", "0 0 * * 7-7", "0 0 * * 7/2", "0 0 ? * SUN"},
		{"0 0 * * *", "@daily", "@midnight", "0,0 0-0 * 1-12 0-6", "0 0 * * 1-7"},
		{"0 * * * *", "@hourly", "0 */1 * * *", "*/60 ? * * *"},
		{"5-59/10 * * * *", "5/10 * * * *", "5,15,25,35,45,55 * * * *"},
		{"0 0 * * 1-5", "0 0 * * mon-fri", "0 0 * * Mon,tue,3-5"},
		{"0 0 * * 5-7", "0 0 * * 5-6,0", "0 0 * * fri-7"},
		{"0 0 * * 1,3,5", "0 0 * * 1/2"},
		{"0 0 29 2 1", "0 0 29 feb mon"},
	} {
		first := parse(t, alike[0])
		for _, text := range alike[1:] {
			s := parse(t, text)
			require.Equal(t, text, s.String())
			s.text = first.text
			require.Equal(t, first, s, "%s and %s", first, text)
		}
	}
}

func parse(t testing.TB, text string) Spec {
	t.Helper()
	s, err := Parse(text)
	require.NoError(t, err)
	return s
}

// A minute field of * with a fixed hour runs too often.
func TestWarning(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"* 0 * * *":     "runs every minute of hour 0, 60 times; for one run give field 1 (minute) one value, such as 0",
		"0-59 5 * * 1":  "runs every minute of hour 5, 60 times; for one run give field 1 (minute) one value, such as 0",
		"* */2 * * *":   "runs every minute of 12 hours, 720 times a day; for one run an hour give field 1 (minute) one value, such as 0",
		"* 9-17 * * *":  "runs every minute of 9 hours, 540 times a day; for one run an hour give field 1 (minute) one value, such as 0",
		"* * * * *":     "",
		"* 0-23 * * *":  "",
		"0 0 * * *":     "",
		"*/2 0 * * *":   "",
		"@hourly":       "",
		"15 9-17 * * 1": "",
	} {
		require.Equal(t, want, parse(t, spec).Warning(), spec)
	}
	require.Empty(t, Spec{}.Warning())
}

// Each accepted spec runs within 40 years, at a whole minute after the given time.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"* * * * *", "30 2 * * *", "*/15 0-3,22 1,15 * mon-fri", "0 0 29 2 */7", "0 0 ? jan-mar/2 7", "@weekly", "@every 1h",
		"TZ=UTC 0 0 * * *", "0 0 31 4 *", "0 0 L * *", "* 0 * * *", "60/0 -1 1-- ,, #", "\x00 \xff * * *",
	} {
		f.Add(spec, int64(1_774_742_400))
	}
	f.Add("0 0 29 2 *", int64(-2_208_988_801))
	f.Add("0 0 1 1 *", int64(1<<40-1))
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		s, err := Parse(text)
		if err != nil {
			require.Regexp(t, "^cron: ", err.Error())
			require.Zero(t, s)
			return
		}
		again, err := Parse(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
		require.Equal(t, text, s.String())
		after := time.Unix(seconds%(1<<40), seconds&(1<<29-1)).UTC()
		next := s.Next(after)
		if next.IsZero() {
			require.Greater(t, after.Year(), lastYear-41)
			return
		}
		require.True(t, next.After(after))
		require.LessOrEqual(t, next.Year(), after.Year()+40)
		require.Zero(t, next.Second())
		require.Zero(t, next.Nanosecond())
	})
}
