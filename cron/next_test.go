package cron

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runsFrom returns the times of a schedule after a time, as RFC 3339.
func runsFrom(s interface{ Next(time.Time) time.Time }, after time.Time, count int) (list []string) {
	for range count {
		after = s.Next(after)
		list = append(list, after.Format(time.RFC3339))
	}
	return list
}

func TestZeroSpecNeverMatches(t *testing.T) {
	t.Parallel()
	require.Zero(t, Spec{}.Next(time.Now()))
	require.Zero(t, Zoned{}.Next(time.Now()))
	require.Zero(t, Spec{}.In(time.UTC).Next(time.Now()))
	require.Empty(t, Spec{}.String())
}

func TestInWithoutALocation(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "cron: the location of Spec.In is nil", func() { Spec{}.In(nil) })
}

// Spec.Next returns a time in the location of its argument, Zoned.Next in its own location.
func TestLocation(t *testing.T) {
	t.Parallel()
	berlin, noon := zone(t, "Europe/Berlin"), parse(t, "0 12 * * *")
	after := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), noon.Next(after))
	require.Equal(t, time.Date(2026, 7, 1, 12, 0, 0, 0, berlin), noon.Next(after.In(berlin)))
	require.Equal(t, time.Date(2026, 7, 1, 12, 0, 0, 0, berlin), noon.In(berlin).Next(after))
	require.Equal(t, time.Date(2026, 7, 2, 12, 0, 0, 0, berlin), noon.In(berlin).Next(after.Add(10*time.Hour)))
}

// A planned time is not after itself; a time within the second after it is past it.
func TestStrictlyAfter(t *testing.T) {
	t.Parallel()
	for _, s := range []Spec{parse(t, "0 12 * * *"), parse(t, "0 */12 * * 1-7")} {
		noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
		require.Equal(t, noon, s.Next(noon.Add(-1)))
		require.True(t, s.Next(noon).After(noon.Add(time.Hour)))
		require.True(t, s.Next(noon.Add(1)).After(noon.Add(time.Hour)))
	}
}

func TestNothingAfter2262(t *testing.T) {
	t.Parallel()
	yearly, last := parse(t, "@yearly"), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, last, yearly.Next(last.Add(-1)))
	require.Zero(t, yearly.Next(last))
	require.Zero(t, parse(t, "0 * 1 1 *").Next(last.AddDate(0, 0, 1)))
	require.Zero(t, yearly.Next(last.AddDate(1, 0, 0)))
	require.Zero(t, parse(t, "* * * * *").Next(last.AddDate(1, 0, 0)))
	require.Zero(t, parse(t, "* * * * *").Next(last.AddDate(1, 0, 0).Add(-1)))
	require.Equal(t, time.Date(2, 1, 1, 0, 0, 0, 0, time.UTC), yearly.Next(time.Time{}))
}

// A day matches if either field does, if neither begins with a star, and if both do otherwise.
func TestDays(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]string{
		"0 0 1,15 * 1":  {"2026-06-01T00:00:00Z", "2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z", "2026-06-22T00:00:00Z"},
		"0 0 2 * 1":     {"2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z", "2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z"},
		"0 0 */2 * 1":   {"2026-06-01T00:00:00Z", "2026-06-15T00:00:00Z", "2026-06-29T00:00:00Z", "2026-07-13T00:00:00Z"},
		"0 0 1 * */2":   {"2026-08-01T00:00:00Z", "2026-09-01T00:00:00Z", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"},
		"0 0 ? 6 1":     {"2026-06-01T00:00:00Z", "2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z", "2026-06-22T00:00:00Z"},
		"0 0 1-31 6 1":  {"2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z", "2026-06-03T00:00:00Z", "2026-06-04T00:00:00Z"},
		"0 0 30 2 1":    {"2027-02-01T00:00:00Z", "2027-02-08T00:00:00Z", "2027-02-15T00:00:00Z", "2027-02-22T00:00:00Z"},
		"59 23 31 12 *": {"2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z", "2028-12-31T23:59:00Z", "2029-12-31T23:59:00Z"},
	} {
		require.Equal(t, want, runsFrom(parse(t, spec), time.Date(2026, 5, 31, 12, 0, 0, 0, time.UTC), 4), spec)
	}
}

// 29 February is up to 8 years away, or up to 40 if it must be a Sunday.
func TestLeapDay(t *testing.T) {
	t.Parallel()
	after := time.Date(2092, 2, 29, 0, 0, 0, 0, time.UTC)
	require.Equal(t, []string{"2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"}, runsFrom(parse(t, "0 0 29 2 *"), after, 3))
	sundays := parse(t, "0 */12 29 2 */7")
	require.Equal(t, []string{"2088-02-29T00:00:00Z", "2088-02-29T12:00:00Z", "2128-02-29T00:00:00Z"}, runsFrom(sundays, after.AddDate(-30, 0, 0), 3))
	require.Equal(t, "2128-02-29T00:00:00+01:00", sundays.In(zone(t, "Europe/Berlin")).Next(after).Format(time.RFC3339))
}

// Days 29 to 31 are skipped in months that do not have them.
func TestDays29To31(t *testing.T) {
	t.Parallel()
	after := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	require.Equal(t, []string{"2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z", "2026-07-31T00:00:00Z", "2026-08-31T00:00:00Z"}, runsFrom(parse(t, "0 0 31 * *"), after, 4))
	require.Equal(t, []string{"2026-03-30T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-30T00:00:00Z"}, runsFrom(parse(t, "0 0 30 * *"), after, 3))
	require.Equal(t, []string{"2026-02-28T00:00:00Z", "2026-03-28T00:00:00Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-28T00:00:00Z"}, runsFrom(parse(t, "0 0 28-31 * *"), after, 6))
}

// In every zone a year has the expected runs: no schedule stalls at a clock change, or repeats a
// day.
func TestNotStuckAfterAChange(t *testing.T) {
	t.Parallel()
	for _, name := range zones {
		zone := zone(t, name)
		for _, year := range []int{2026, 2040} {
			begin := time.Date(year, 1, 1, 0, 0, 0, 0, zone)
			days := int(time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC).Sub(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)).Hours() / 24)
			for spec, want := range map[string]int{
				"30 2 * * *":   days,
				"0 0 * * *":    days,
				"*/30 * * * *": days * 48, // the two clock changes cancel out
			} {
				s, at, count := parse(t, spec), begin.Add(-1), 0
				for {
					next := s.Next(at)
					require.True(t, next.After(at), "%s: %s after %v is %v", name, spec, at, next)
					if next.Year() != year {
						break
					}
					at = next
					count++
				}
				require.Equal(t, want, count, "%s: %s in %d", name, spec, year)
			}
		}
	}
}

// Named times of a date that does not exist, 30 December 2011 in Samoa, run at its end.
func TestDateThatDoesNotExist(t *testing.T) {
	t.Parallel()
	apia := zone(t, "Pacific/Apia")
	after := time.Date(2011, 12, 29, 0, 0, 0, 0, apia)
	require.Equal(t, []string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"}, runsFrom(parse(t, "0 12 * * *"), after, 3))
	require.Equal(t, []string{"2011-12-31T00:00:00+14:00", "2012-12-30T07:00:00+14:00"}, runsFrom(parse(t, "0 7 30 12 *"), after, 2))
	require.Equal(t, "2012-12-30T00:00:00+14:00", parse(t, "0 */6 30 12 *").Next(after).Format(time.RFC3339))
}

// On 31 December of a leap year time.Time.ZoneBounds may return an end in the past.
func TestEndOfALeapYear(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	after := time.Date(2040, 12, 31, 12, 0, 0, 0, berlin)
	july := time.Date(2041, 7, 1, 12, 0, 0, 0, berlin)
	require.Equal(t, july, parse(t, "0 12 1 7 *").Next(after))
	require.Equal(t, july, parse(t, "0 */12 1 7 *").Next(after.Add(-12*time.Hour)).Add(12*time.Hour))
}

// A list of hours is fixed, even if one of its elements has a star.
func TestListOfHoursIsFixed(t *testing.T) {
	t.Parallel()
	after := time.Date(2026, 3, 29, 0, 0, 0, 0, zone(t, "Europe/Berlin"))
	require.Equal(t, []string{"2026-03-29T03:00:00+02:00", "2026-03-29T12:00:00+02:00"}, runsFrom(parse(t, "0 */12,2 * * *"), after, 2))
	require.Equal(t, []string{"2026-03-29T12:00:00+02:00", "2026-03-30T00:00:00+02:00"}, runsFrom(parse(t, "0 */12 * * *"), after, 2))
}

// Two names of a zone give the same times.
func TestRenamedZone(t *testing.T) {
	t.Parallel()
	year := func(name string) (list []int64) {
		s, at := parse(t, "*/20 1-4 * * *").In(zone(t, name)), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for at.Year() == 2026 {
			at = s.Next(at)
			list = append(list, at.Unix())
		}
		return list
	}
	require.Equal(t, year("Europe/Kyiv"), year("Europe/Kiev"))
}

func BenchmarkNext(b *testing.B) {
	for _, spec := range []string{"30 2 * * *", "*/15 * * * *", "0 0 29 2 *"} {
		for _, name := range []string{"UTC", "Europe/Berlin"} {
			b.Run("spec="+spec+"/zone="+name, func(b *testing.B) {
				s, after := parse(b, spec), time.Date(2026, 7, 1, 8, 0, 0, 0, zone(b, name))
				b.ReportAllocs()
				for b.Loop() {
					s.Next(after)
				}
			})
		}
	}
}
