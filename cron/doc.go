// Package cron parses cron specs and computes their times, including on the days on which clocks
// are set forward or back.
//
// [Parse] returns a [Spec], whose method Next makes it a Schedule of package scheduler.
// [Spec.In] binds it to a time zone. [Every] is for fixed periods. All three are values: they
// are safe for concurrent use and start no goroutine.
//
// # Specs
//
// A spec has five fields, separated by spaces or tabs:
//
//	field  name          values
//	1      minute        0 to 59
//	2      hour          0 to 23
//	3      day of month  1 to 31
//	4      month         1 to 12, or jan to dec
//	5      day of week   0 to 7, or sun to sat; both 0 and 7 are Sunday
//
// A field is a list of elements, separated by commas. An element is one of
//
//	a      one value
//	a-b    the values from a to b
//	*      all values; ? means the same
//	*/n    each nth value, from the first one
//	a/n    each nth value, from a to the last one, which is Saturday in field 5
//	a-b/n  each nth value, from a to b
//
// Names may be in upper or lower case. A step starts again with each hour, day, month, year or
// week: */45 in field 1 means minutes 0 and 45. Instead of five fields a spec can be one of
//
//	@yearly, @annually    0 0 1 1 *
//	@monthly              0 0 1 * *
//	@weekly               0 0 * * 0
//	@daily, @midnight     0 0 * * *
//	@hourly               0 * * * *
//
// If fields 3 and 5 are both restricted, a day matches if either field does. Otherwise both
// fields must match. A field is restricted if it does not begin with * or ?. This is the rule of
// Vixie cron: "0 0 1,15 * 1" runs on the 1st, on the 15th, and on each Monday; "0 0 */2 * 1"
// runs on each Monday with an odd date.
//
// Seconds, years, L, W and # are not supported. Neither are @every and a zone in the spec:
// [Every] and [Spec.In] replace them.
//
// # The days the clocks change
//
// A spec with fixed hours runs once a day at each wall-clock time that it names. A time that
// does not exist runs at the end of the gap, and a time that occurs twice runs at its first
// occurrence. Two named times at the same instant are one run.
//
// A spec whose hour field is *, ?, or one of these with a step follows elapsed time: it runs at
// every real minute whose wall clock matches. So times in a gap do not occur, and repeated ones
// occur twice. A list of hours is fixed, even if one of its elements has a star.
//
// docs/schedules.md in the repository has a table of examples.
//
// # Sources
//
// The syntax and the rule for days are those of crontab(5) of Vixie cron. Zones and their
// offsets come from package time.
package cron
