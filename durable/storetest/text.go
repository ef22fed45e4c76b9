package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable/store"
)

// textTests test bodies, keys, topics and errors of any bytes.
var textTests = []test{
	{"case 10: bodies of any bytes come back as they were", check(anyBody)},
	{"case 11: keys of any bytes, with braces, of 512 bytes", checkWith(Options{Shards: 3}, anyKey)},
	{"topics of any bytes", check(anyTopic)},
	{"D9 errors of any bytes, cut to 1 KiB between characters", check(anyError)},
}

// texts are strings that engines that build text may corrupt.
func texts(longest int) []string {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	list := []string{
		"", "\x00", "a\x00b", "\x00\x00\x00", "\xff\xfe\x80", "é\xc3", "0", "-1", "1e3", "12345678901234567890", "nil", "false",
		" ", "\r\n", "a\nb", "{", "}", "{}", "{a}b", "}{", "{a", "a}", "{{a}}", ":", "a:b", "|", "%", "%s", "\\", "'", `"`, "*", "?", "[a]",
		string(every), strings.Repeat("x", longest), strings.Repeat("\x00", longest), strings.Repeat("}", longest),
	}
	return slices.DeleteFunc(list, func(s string) bool { return len(s) > longest })
}

// throughAllStates takes a timer through all of its states, and calls same with its record in each.
func (f *fixture) throughAllStates(e store.Entry, same func(store.Record)) {
	f.Helper()
	n := f.shardOf(e.Key)
	claim := func(attempt int) store.Lease {
		f.Helper()
		claimed, _ := f.claimWith(n, newClaim(2))
		f.Len(claimed.Leases, 1)
		l := claimed.Leases[0]
		f.Equal(attempt, l.Attempt)
		same(store.Record{Key: l.Key, ID: l.ID, Topic: l.Topic, Body: l.Body})
		same(f.get(e.Key))
		return l
	}
	f.Equal(store.Created, f.put(e).Kind)
	same(f.get(e.Key))
	f.ended(claim(1), store.Retry)
	same(f.get(e.Key))
	l := claim(2)
	r, _ := f.extend(l.Holder, 2*testLease)
	f.Equal(store.Extended, r)
	f.ended(l, store.DeadLetter)
	same(f.get(e.Key))
	f.Equal(e.Key, f.list(n, store.Dead, 1)[0].Key)
	f.Equal([]store.RequeueResult{store.Requeued}, f.requeue(e.Key))
	same(f.get(e.Key))
	f.Equal([]store.MoveResult{store.Moved}, f.reschedule(store.Move{Key: e.Key, At: 2}))
	f.Equal(e.Key, f.list(n, store.Waiting, 1)[0].Key)
	l = claim(1)
	f.Equal(store.Succeeds, f.put(e).Kind)
	f.ended(l, store.Done)
	same(f.get(e.Key))
	l = claim(1)
	f.Equal([]store.CancelResult{store.Running}, f.cancel(e.Key))
	r, _ = f.extend(l.Holder, testLease)
	f.Equal(store.ExtendCancelled, r)
	f.ended(l, store.Done)
	f.absent(e.Key)
}

func anyBody(f *fixture) {
	bodies := texts(store.MaxBody)
	for i, body := range bodies {
		e := entry(name("k", i))
		e.Body = []byte(body)
		f.throughAllStates(e, func(r store.Record) { f.True(bytes.Equal(e.Body, r.Body), "body %d", i) })
	}
	e := entry("nil")
	e.Body = nil
	f.throughAllStates(e, func(r store.Record) { f.Empty(r.Body) })
	// All at once, too.
	for i, body := range bodies {
		e := entry(name("k", i))
		e.Body = []byte(body)
		f.Equal(store.Created, f.put(e).Kind)
	}
	for i, l := range f.claim(store.MaxItems) {
		f.True(bytes.Equal([]byte(bodies[i]), l.Body), "body %d", i)
	}
}

func anyKey(f *fixture) {
	keys := texts(store.MaxKey)
	for i, key := range keys {
		if store.IsPlan(key) {
			keys[i] = key[1:] + fmt.Sprint(i%10) // otherwise a plan's key
		}
	}
	for _, key := range keys {
		if key != "" {
			f.throughAllStates(entry(key), func(r store.Record) {
				f.Equal(key, r.Key)
				f.Equal("body of "+key, string(r.Body))
			})
		}
	}
	for _, key := range keys {
		if key != "" {
			f.Equal(store.Created, f.put(entry(key)).Kind)
		}
	}
	f.verify() // the order by key among them
	for _, key := range keys {
		if key != "" {
			f.Equal([]store.CancelResult{store.Cancelled, store.NotFound}, f.cancel(key, key))
		}
	}
}

func anyTopic(f *fixture) {
	for i, topic := range texts(store.MaxTopic) {
		e := entry(name("k", i))
		e.Topic = topic
		f.throughAllStates(e, func(r store.Record) { f.Equal(topic, r.Topic) })
	}
}

func anyError(f *fixture) {
	long := []string{strings.Repeat("x", store.MaxError-1) + "é", strings.Repeat("日", store.MaxError), strings.Repeat("\x00", 3*store.MaxError)}
	f.putAll("a")
	for _, text := range append(texts(store.MaxError), long...) {
		l := f.claimOne("a")
		f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.Retry, Error: text}))
		kept := f.get("a").LastError
		f.Equal(store.CutError(text), kept)
		f.LessOrEqual(len(kept), store.MaxError)
		f.Equal(utf8.ValidString(text), utf8.ValidString(kept))
		l = f.claimOne("a")
		f.Equal(kept, l.LastError)
		f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.DeadLetter, Error: "!" + text}))
		f.Equal(store.CutError("!"+text), f.get("a").LastError)
		f.Equal([]store.RequeueResult{store.Requeued}, f.requeue("a"))
	}
}
