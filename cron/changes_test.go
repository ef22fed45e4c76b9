package cron

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// changeDays are the days in the table of docs/schedules.md.
var changeDays = []struct {
	title, zone string
	year        int
	month       time.Month
	day         int
}{
	{"Berlin, 29 March", "Europe/Berlin", 2026, time.March, 29},
	{"Berlin, 25 October", "Europe/Berlin", 2026, time.October, 25},
	{"Lord Howe, 4 October", "Australia/Lord_Howe", 2026, time.October, 4},
	{"Lord Howe, 5 April", "Australia/Lord_Howe", 2026, time.April, 5},
}

// changeTable has the planned times on each of changeDays.
var changeTable = []struct {
	spec  string
	times [4]string
}{
	{"30 2 * * *", [4]string{"03:00+02:00", "02:30+02:00", "02:30+11:00", "02:30+10:30"}},
	{"0 3 * * *", [4]string{"03:00+02:00", "03:00+01:00", "03:00+11:00", "03:00+10:30"}},
	{"*/15 * * * *", [4]string{"00:00+01:00 … 23:45+02:00 (92)", "00:00+02:00 … 23:45+01:00 (100)", "00:00+10:30 … 23:45+11:00 (94)", "00:00+11:00 … 23:45+10:30 (98)"}},
	{"*/15 1-2 * * *", [4]string{"01:00+01:00 … 03:00+02:00 (5)", "01:00+02:00 … 02:45+02:00 (8)", "01:00+10:30 … 02:45+11:00 (6)", "01:00+11:00 … 02:45+10:30 (8)"}},
	{"0 2-4 * * *", [4]string{"03:00+02:00, 04:00+02:00", "02:00+02:00, 03:00+01:00, 04:00+01:00", "02:30+11:00, 03:00+11:00, 04:00+11:00", "02:00+10:30, 03:00+10:30, 04:00+10:30"}},
}

// The planned times on the days of clock changes match docs/schedules.md.
func TestDaysTheClocksChange(t *testing.T) {
	t.Parallel()
	table := "| spec |"
	for _, d := range changeDays {
		table += " " + d.title + " |"
	}
	table += "\n|---|---|---|---|---|\n"
	for _, row := range changeTable {
		s := parse(t, row.spec)
		for i, d := range changeDays {
			zone := zone(t, d.zone)
			midnight := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, zone)
			var times []string
			for at := s.Next(midnight.Add(-1)); at.Before(midnight.AddDate(0, 0, 1)); at = s.Next(at) {
				times = append(times, at.Format("15:04-07:00"))
			}
			if n := len(times); n > 3 {
				times = []string{fmt.Sprintf("%s … %s (%d)", times[0], times[n-1], n)}
			}
			require.Equal(t, row.times[i], strings.Join(times, ", "), "%s: %s", row.spec, d.title)
		}
		table += "| `" + row.spec + "` | " + strings.Join(row.times[:], " | ") + " |\n"
	}
	page, err := os.ReadFile("../docs/schedules.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "\n"+table+"\n", "docs/schedules.md must have this table")
}
