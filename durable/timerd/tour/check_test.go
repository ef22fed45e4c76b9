package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// schedule and the functions below make the events of one timer, by default of key 1. Times are
// written as milliseconds with three more digits: 5000 is 5 ms.
func schedule(at int64, timer, key int, notBefore int64) event {
	return event{Kind: eventSchedule, At: at, Timer: timer, Key: key, NotBefore: notBefore, Mode: modeOK}
}

func scheduled(at int64, timer int, result string, due int64) event {
	return event{Kind: eventScheduled, At: at, Timer: timer, Result: result, Due: due}
}

func cancel(at int64, key int) event { return event{Kind: eventCancel, At: at, Key: key} }

func cancelled(at int64, key int, result string) event {
	return event{Kind: eventCancelled, At: at, Key: key, Result: result}
}

func moves(at int64, timer int, due int64) event {
	return event{Kind: eventMove, At: at, Timer: timer, Due: due}
}

func moved(at int64, timer int, result string) event {
	return event{Kind: eventMoved, At: at, Timer: timer, Result: result}
}

func begins(at int64, timer int, id string) event {
	return event{Kind: eventBegins, At: at, Timer: timer, ID: id, Attempt: 1}
}

func acknowledged(at int64, id string) event {
	return event{Kind: eventAcknowledged, At: at, ID: id}
}

func replies(at int64, timer int, id string, status int) event {
	return event{Kind: eventReplies, At: at, Timer: timer, ID: id, Attempt: 1, Status: status}
}

// check evaluates events.
func check(t *testing.T, dead string, events []event) Summary {
	t.Helper()
	h := newHistory()
	for _, e := range events {
		require.NoError(t, h.add(e))
	}
	keys := map[string]bool{}
	if dead != "" {
		keys[dead] = true
	}
	return h.check(keys, nil)
}

// The check finds each error that must not occur: a tour that cannot fail proves nothing.
func TestCheckFindsFaults(t *testing.T) {
	first := []event{schedule(1000, 1, 1, 100), scheduled(2000, 1, "created", 100)}
	ran := []event{begins(100000, 1, "id"), replies(101000, 1, "id", 200), acknowledged(102000, "id")}
	with := func(events ...[]event) (all []event) {
		for _, e := range events {
			all = append(all, e...)
		}
		return all
	}
	again := []event{schedule(50000, 3, 1, 200), scheduled(51000, 3, "replaced", 200)}
	thirdRan := []event{begins(200000, 3, "id3"), replies(201000, 3, "id3", 200)}
	removed := []event{cancel(50000, 1), cancelled(51000, 1, "cancelled")}
	running := []event{cancel(50000, 1), cancelled(51000, 1, "running")}
	postponed := []event{moves(50000, 1, 300), moved(51000, 1, "moved")}
	for name, c := range map[string]struct {
		events []event
		dead   string
		want   Summary
	}{
		"good":                {events: with(first, ran), want: Summary{Timers: 1, Ran: 1, LateMS: LateMS{1, 1}}},
		"handler early":       {events: with(first, []event{begins(99999, 1, "id")}, ran[1:]), want: Summary{Timers: 1, Ran: 1, Early: 1, LateMS: LateMS{1, 1}}},
		"callback early":      {events: with(first, []event{replies(99999, 1, "id", 200)}), want: Summary{Timers: 1, Ran: 1, Early: 1}},
		"never ran":           {events: first, want: Summary{Timers: 1, Lost: 1}},
		"only failed":         {events: with(first, []event{begins(100000, 1, "id"), replies(101000, 1, "id", 503)}), want: Summary{Timers: 1, Lost: 1, LateMS: LateMS{1, 1}}},
		"no answer":           {events: first[:1], want: Summary{Lost: 1}},
		"dead":                {events: first, dead: "order-1", want: Summary{Timers: 1, Dead: 1}},
		"another is dead":     {events: first, dead: "order-2", want: Summary{Timers: 1, Dead: 1, Lost: 1}},
		"repeated":            {events: with(first, ran[:2], ran), want: Summary{Timers: 1, Ran: 1, Repeated: 1, LateMS: LateMS{1, 1}}},
		"acknowledged twice":  {events: with(first, ran, ran[2:]), want: Summary{Timers: 1, Ran: 1, AcknowledgedTwice: 1, LateMS: LateMS{1, 1}}},
		"sent twice":          {events: with(first[:1], first, ran), want: Summary{Timers: 1, Ran: 1}},
		"replaced":            {events: with(first, again, thirdRan), want: Summary{Timers: 2, Ran: 1, LateMS: LateMS{1, 1}}},
		"ran though replaced": {events: with(first, again, ran[:1], thirdRan), want: Summary{Timers: 2, Ran: 1, RanAfterCancel: 1, LateMS: LateMS{1, 1}}},
		"succeeded": {events: with(first, again[:1], []event{scheduled(51000, 3, "succeeds", 200)}, ran[:1], thirdRan),
			want: Summary{Timers: 2, Ran: 1}}, // it had been claimed before, and failed
		"retried though succeeded": {events: with(first, again[:1], []event{scheduled(51000, 3, "succeeds", 200)}, ran[:1], ran[:1], thirdRan),
			want: Summary{Timers: 2, Ran: 1, RanAfterCancel: 1}},
		"first lost": {events: with(first, again[:1], []event{scheduled(51000, 3, "created", 200)}, thirdRan),
			want: Summary{Timers: 2, Ran: 1, Lost: 1, LateMS: LateMS{1, 1}}},
		"cancelled":               {events: with(first, removed), want: Summary{Timers: 1, Cancelled: 1}},
		"ran though cancelled":    {events: with(first, removed, ran[:1]), want: Summary{Timers: 1, Cancelled: 1, RanAfterCancel: 1}},
		"cancelled while running": {events: with(first, running, ran[:1]), want: Summary{Timers: 1}},
		"retried though cancelled": {events: with(first, running, ran[:1], []event{begins(110000, 1, "id")}),
			want: Summary{Timers: 1, RanAfterCancel: 1}},
		"successor though cancelled": {events: with(first, []event{schedule(40000, 3, 1, 200), scheduled(41000, 3, "succeeds", 200)}, running, ran[:1], thirdRan[:1]),
			want: Summary{Timers: 2, RanAfterCancel: 1}},
		"not found, and never ran":   {events: with(first, []event{cancel(50000, 1), cancelled(51000, 1, "not found")}), want: Summary{Timers: 1, Lost: 1}},
		"not found the second time":  {events: with(first, []event{cancel(50000, 1), cancel(50500, 1), cancelled(51000, 1, "not found")}), want: Summary{Timers: 1}},
		"cancel without answer":      {events: with(first, ran, []event{cancel(150000, 1)}), want: Summary{Timers: 1, Ran: 1, Lost: 1, LateMS: LateMS{1, 1}}},
		"moved, and ran too early":   {events: with(first, postponed, ran), want: Summary{Timers: 1, Ran: 1, Early: 1}},
		"moved, and ran in time":     {events: with(first, postponed, []event{replies(302000, 1, "id", 200)}), want: Summary{Timers: 1, Ran: 1, LateMS: LateMS{2, 2}}},
		"not moved, and ran in time": {events: with(first, postponed[:1], []event{moved(51000, 1, "running")}, ran), want: Summary{Timers: 1, Ran: 1, LateMS: LateMS{1, 1}}},
		"ran while it was moved":     {events: with(first, []event{moves(99000, 1, 300), moved(105000, 1, "moved")}, ran), want: Summary{Timers: 1, Ran: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := check(t, c.dead, c.events)
			require.Equal(t, c.want, s)
			require.Equal(t, s.Early+s.Lost+s.RanAfterCancel+s.AcknowledgedTwice == 0, s.ok())
		})
	}
	require.False(t, Summary{LeftBehind: 1}.ok())
}

// For a key with an error, history prints the events of all ledgers in order of time.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	ledgers := map[string][]event{
		"scheduler": {schedule(1000, 1, 1, 100), scheduled(2000, 1, "created", 100), schedule(1500, 5, 5, 100), scheduled(2500, 5, "created", 100), cancel(3000, 1), cancelled(4000, 1, "cancelled")},
		"worker":    {begins(100000, 1, "id"), acknowledged(102000, "id"), begins(100500, 5, "id5"), acknowledged(102500, "id5")},
		"receiver":  {replies(101000, 1, "id", 200), replies(101500, 5, "id5", 200)},
	}
	h := newHistory()
	for name, events := range ledgers {
		path := filepath.Join(dir, name+".ledger")
		l, err := openLedger(path)
		require.NoError(t, err)
		for _, e := range events {
			l.write(e)
		}
		require.NoError(t, l.f.Close())
		h.tails = append(h.tails, &tail{path: path})
	}
	require.NoError(t, h.read())
	require.Equal(t, 1, h.check(nil, nil).RanAfterCancel)
	var out strings.Builder
	h.print(&out)
	require.Equal(t, []string{
		`scheduler    {"kind":"schedule","at":1000,"timer":1,"key":1,"not_before":100,"mode":"ok"}`,
		`scheduler    {"kind":"scheduled","at":2000,"timer":1,"due":100,"result":"created"}`,
		`scheduler    {"kind":"cancel","at":3000,"key":1}`,
		`scheduler    {"kind":"cancelled","at":4000,"key":1,"result":"cancelled"}`,
		`worker       {"kind":"begins","at":100000,"timer":1,"id":"id","attempt":1}`,
		`receiver     {"kind":"replies","at":101000,"timer":1,"id":"id","attempt":1,"status":200}`,
		`worker       {"kind":"acknowledged","at":102000,"id":"id"}`,
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}

func TestBrokenLines(t *testing.T) {
	for _, line := range []string{"", "x 1", "{}", `{"kind":"x"}`, `{"kind":"schedule","timer":"a"}`, `{"kind":"replies","at":1`} {
		path := filepath.Join(t.TempDir(), "ledger")
		require.NoError(t, os.WriteFile(path, []byte(line+"\n"), 0o600))
		require.Error(t, newHistory(path).read(), line)
	}
}

// A ledger is read as it grows, line by line.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	tail := tail{path: path}
	var got []event
	read := func() {
		require.NoError(t, tail.events(func(e event) error { got = append(got, e); return nil }))
	}
	read()
	l, err := openLedger(path)
	require.NoError(t, err)
	first, second, third := begins(1, 1, "id"), scheduled(2, 1, "replaced dead letter", 3), cancel(3, 1)
	l.write(first)
	read()
	l.write(second)
	line := third.line()
	_, err = l.f.Write(line[:5])
	require.NoError(t, err)
	read()
	require.Equal(t, []event{first, second}, got)
	_, err = l.f.Write(append(line[5:], '\n'))
	require.NoError(t, err)
	read()
	require.Equal(t, []event{first, second, third}, got)
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
