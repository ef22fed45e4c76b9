package tour

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// check runs ledger lines through a book. Times are written as milliseconds with
// three digits after them, so that 5000 is 5 ms.
func check(t *testing.T, dead string, lines ...string) Summary {
	t.Helper()
	b := newBook()
	for _, l := range lines {
		require.NoError(t, b.line(strings.Fields(l)), l)
	}
	keys := map[string]bool{}
	if dead != "" {
		keys[dead] = true
	}
	return b.check(keys)
}

// What must be 0 is not when it must not be: a tour that cannot fail proves
// nothing.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	scheduled := []string{"s 1000 1 1 100 ok", "S 2000 1 created 100"}
	ran := []string{"b 100000 1 id 1", "r 101000 1 id 1 200", "a 102000 id"}
	with := func(lines ...[]string) (all []string) {
		for _, l := range lines {
			all = append(all, l...)
		}
		return all
	}
	again := []string{"s 50000 3 1 200 ok", "S 51000 3 replaced 200"}
	thirdRan := []string{"b 200000 3 id3 1", "r 201000 3 id3 1 200"}
	cancelled := []string{"c 50000 1", "C 51000 1 cancelled"}
	running := []string{"c 50000 1", "C 51000 1 running"}
	moved := []string{"m 50000 1 1 300", "M 51000 1 1 moved"}
	for name, c := range map[string]struct {
		lines []string
		dead  string
		want  Summary
	}{
		"good":                {lines: with(scheduled, ran), want: Summary{Timers: 1, Ran: 1, LateMS: LateMS{1, 1}}},
		"handler early":       {lines: with(scheduled, []string{"b 99999 1 id 1"}, ran[1:]), want: Summary{Timers: 1, Ran: 1, Early: 1, LateMS: LateMS{1, 1}}},
		"call-back early":     {lines: with(scheduled, []string{"r 99999 1 id 1 200"}), want: Summary{Timers: 1, Ran: 1, Early: 1}},
		"never ran":           {lines: scheduled, want: Summary{Timers: 1, Lost: 1}},
		"only failed":         {lines: with(scheduled, []string{"b 100000 1 id 1", "r 101000 1 id 1 503"}), want: Summary{Timers: 1, Lost: 1, LateMS: LateMS{1, 1}}},
		"no answer":           {lines: scheduled[:1], want: Summary{Lost: 1}},
		"dead":                {lines: scheduled, dead: "order-1", want: Summary{Timers: 1, Dead: 1}},
		"another is dead":     {lines: scheduled, dead: "order-2", want: Summary{Timers: 1, Dead: 1, Lost: 1}},
		"repeated":            {lines: with(scheduled, ran[:2], ran), want: Summary{Timers: 1, Ran: 1, Repeated: 1, LateMS: LateMS{1, 1}}},
		"acknowledged twice":  {lines: with(scheduled, ran, ran[2:]), want: Summary{Timers: 1, Ran: 1, AcknowledgedTwice: 1, LateMS: LateMS{1, 1}}},
		"sent twice":          {lines: with(scheduled[:1], scheduled, ran), want: Summary{Timers: 1, Ran: 1}},
		"replaced":            {lines: with(scheduled, again, thirdRan), want: Summary{Timers: 2, Ran: 1, LateMS: LateMS{1, 1}}},
		"ran though replaced": {lines: with(scheduled, again, ran[:1], thirdRan), want: Summary{Timers: 2, Ran: 1, RanAfterCancel: 1, LateMS: LateMS{1, 1}}},
		"succeeded": {lines: with(scheduled, again[:1], []string{"S 51000 3 succeeds 200"}, ran[:1], thirdRan),
			want: Summary{Timers: 2, Ran: 1}}, // it was claimed before, and failed
		"retried though succeeded": {lines: with(scheduled, again[:1], []string{"S 51000 3 succeeds 200"}, ran[:1], ran[:1], thirdRan),
			want: Summary{Timers: 2, Ran: 1, RanAfterCancel: 1}},
		"first lost": {lines: with(scheduled, again[:1], []string{"S 51000 3 created 200"}, thirdRan),
			want: Summary{Timers: 2, Ran: 1, Lost: 1, LateMS: LateMS{1, 1}}},
		"cancelled":               {lines: with(scheduled, cancelled), want: Summary{Timers: 1, Cancelled: 1}},
		"ran though cancelled":    {lines: with(scheduled, cancelled, ran[:1]), want: Summary{Timers: 1, Cancelled: 1, RanAfterCancel: 1}},
		"cancelled while running": {lines: with(scheduled, running, ran[:1]), want: Summary{Timers: 1}},
		"retried though cancelled": {lines: with(scheduled, running, ran[:1], []string{"b 110000 1 id 2"}),
			want: Summary{Timers: 1, RanAfterCancel: 1}},
		"successor though cancelled": {lines: with(scheduled, []string{"s 40000 3 1 200 ok", "S 41000 3 succeeds 200"}, running, ran[:1], thirdRan[:1]),
			want: Summary{Timers: 2, RanAfterCancel: 1}},
		"not found, and never ran":   {lines: with(scheduled, []string{"c 50000 1", "C 51000 1 not_found"}), want: Summary{Timers: 1, Lost: 1}},
		"not found the second time":  {lines: with(scheduled, []string{"c 50000 1", "c 50500 1", "C 51000 1 not_found"}), want: Summary{Timers: 1}},
		"cancel without answer":      {lines: with(scheduled, ran, []string{"c 150000 1"}), want: Summary{Timers: 1, Ran: 1, Lost: 1, LateMS: LateMS{1, 1}}},
		"moved, and ran too early":   {lines: with(scheduled, moved, ran), want: Summary{Timers: 1, Ran: 1, Early: 1}},
		"moved, and ran in time":     {lines: with(scheduled, moved, []string{"r 302000 1 id 1 200"}), want: Summary{Timers: 1, Ran: 1, LateMS: LateMS{2, 2}}},
		"not moved, and ran in time": {lines: with(scheduled, moved[:1], []string{"M 51000 1 1 running"}, ran), want: Summary{Timers: 1, Ran: 1, LateMS: LateMS{1, 1}}},
		"ran while it was moved":     {lines: with(scheduled, []string{"m 99000 1 1 300", "M 105000 1 1 moved"}, ran), want: Summary{Timers: 1, Ran: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := check(t, c.dead, c.lines...)
			require.Equal(t, c.want, s)
			require.Equal(t, s.Early+s.Lost+s.RanAfterCancel+s.AcknowledgedTwice == 0, s.ok())
		})
	}
	require.False(t, Summary{LeftBehind: 1}.ok())
}

// When something is wrong, what all ledgers say about the key is told in order of time.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	ledgers := map[string][]string{
		"scheduler": {"s 1000 1 1 100 ok", "S 2000 1 created 100", "s 1500 5 5 100 ok", "S 2500 5 created 100", "c 3000 1", "C 4000 1 cancelled"},
		"worker":    {"b 100000 1 id 1", "a 102000 id", "b 100500 5 id5 1", "a 102500 id5"},
		"receiver":  {"r 101000 1 id 1 200", "r 101500 5 id5 1 200"},
	}
	b := newBook()
	for name, lines := range ledgers {
		path := filepath.Join(dir, name+".ledger")
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		b.tails = append(b.tails, &tail{path: path})
	}
	require.NoError(t, b.read())
	require.Equal(t, 1, b.check(nil).RanAfterCancel)
	var out strings.Builder
	b.history(&out)
	require.Equal(t, []string{
		"scheduler    s 1000 1 1 100 ok",
		"scheduler    S 2000 1 created 100",
		"scheduler    c 3000 1",
		"scheduler    C 4000 1 cancelled",
		"worker       b 100000 1 id 1",
		"receiver     r 101000 1 id 1 200",
		"worker       a 102000 id",
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}

func TestBookRefusesBrokenLines(t *testing.T) {
	for _, line := range []string{"", "x 1", "s 1", "s a 1 1 1 ok", "r 1 1 id 1"} {
		require.Error(t, newBook().line(strings.Fields(line)), line)
	}
}

// A ledger is read as it grows, line by line.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	tail := tail{path: path}
	var got []string
	read := func() {
		require.NoError(t, tail.lines(func(fields []string) error {
			got = append(got, strings.Join(fields, "-"))
			return nil
		}))
	}
	read()
	l, err := openLedger(path)
	require.NoError(t, err)
	l.write("a", 1)
	read()
	l.write("b", 2, word("x y"))
	_, err = l.f.WriteString("c ")
	require.NoError(t, err)
	read()
	require.Equal(t, []string{"a-1", "b-2-x_y"}, got)
	_, err = l.f.WriteString("3\n")
	require.NoError(t, err)
	read()
	require.Equal(t, []string{"a-1", "b-2-x_y", "c-3"}, got)
	require.NoError(t, os.Remove(path))
}

func TestQuantile(t *testing.T) {
	var us []int64
	for i := range int64(100) {
		us = append(us, i*1000)
	}
	require.Equal(t, 50.0, quantile(us, 0.5))
	require.Equal(t, 99.0, quantile(us, 0.99))
	require.Zero(t, quantile(nil, 0.5))
	require.Equal(t, "0.1", fmt.Sprint(quantile([]int64{199}, 1)))
}
