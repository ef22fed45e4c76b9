package console

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

const (
	defaultLimit = 50
	maxLimit     = 200
	maxKeys      = 500 // in one action
)

// timer is a timer as the API shows it.
type timer struct {
	Key      rawKey `json:"key"`
	Text     string `json:"text"` // the key as readable text
	ID       string `json:"id"`
	Topic    string `json:"topic"`
	State    string `json:"state"`
	Attempts int    `json:"attempts"`
	Error    string `json:"error,omitempty"`

	Due          time.Time `json:"due"`
	LeaseEnd     time.Time `json:"lease_end,omitzero"`
	Worker       string    `json:"worker,omitempty"`
	Died         time.Time `json:"died,omitzero"`
	SuccessorDue time.Time `json:"successor_due,omitzero"`
	Fence        string    `json:"fence,omitempty"` // text: JavaScript's numbers have 53 bits
	Cancelled    bool      `json:"cancelled,omitempty"`

	Schedule     rawKey    `json:"schedule,omitempty"`
	ScheduleText string    `json:"schedule_text,omitempty"`
	Planned      time.Time `json:"planned,omitzero"`

	Body *body `json:"body,omitempty"` // nil in lists
}

// body is a timer's body: the text from Options.Decode, or without Decode the bytes.
type body struct {
	Bytes   int    `json:"bytes"`
	Decoded string `json:"decoded,omitempty"`
	Hidden  bool   `json:"hidden,omitempty"` // Decoded hides secrets
	Base64  string `json:"base64,omitempty"`
}

// stateNames maps the names of the lists to states. Leased timers are called running, as by
// Timers.Cancel.
var stateNames = map[string]durable.State{"waiting": durable.Waiting, "running": durable.Leased, "dead": durable.Dead}

func stateName(s durable.State) string {
	if s == durable.Leased {
		return "running"
	}
	return s.String()
}

func timerOf(i durable.Info) timer {
	t := timer{
		Key: rawKey(i.Key), Text: readable(durable.KeyText(i.Key)), ID: i.ID.String(), Topic: readable(i.Topic),
		State: stateName(i.State), Attempts: i.Attempts, Error: readable(i.LastError),
		Due: i.Due, LeaseEnd: i.LeaseEnd, Worker: readable(i.Worker), Died: i.Died, SuccessorDue: i.SuccessorDue, Cancelled: i.Cancelled,
		Schedule: rawKey(i.Schedule), ScheduleText: readable(i.Schedule), Planned: i.Planned,
	}
	if i.Fence != 0 {
		t.Fence = strconv.FormatUint(i.Fence, 10)
	}
	return t
}

func (c *Console) bodyOf(topic string, b []byte) *body {
	if c.options.Decode == nil {
		return &body{Bytes: len(b), Base64: base64.StdEncoding.EncodeToString(b)}
	}
	text, hidden := hideSecrets(readable(c.options.Decode(topic, b)))
	return &body{Bytes: len(b), Decoded: text, Hidden: hidden}
}

// filter selects the timers of a request.
type filter struct {
	State    string `json:"state"`
	Prefix   string `json:"prefix,omitempty"`
	Topic    string `json:"topic,omitempty"`
	Error    string `json:"error,omitempty"`
	Schedule rawKey `json:"schedule,omitempty"` // selects its occurrences
}

func filterOf(q url.Values) (f filter, err error) {
	f = filter{State: q.Get("state"), Prefix: q.Get("prefix"), Topic: q.Get("topic"), Error: q.Get("error")}
	if s := q.Get("schedule"); s != "" {
		err = f.Schedule.UnmarshalText([]byte(s))
	}
	return f, err
}

// query returns the query of a filter, within the engine's bounds.
func (f filter) query() (durable.Query, error) {
	state, ok := stateNames[f.State]
	if !ok {
		return durable.Query{}, badRequest("state is %.64q, must be waiting, running or dead", f.State)
	}
	q := durable.Query{State: state, Filter: durable.Filter{Prefix: f.Prefix, Topic: f.Topic, Error: f.Error}}
	if f.Schedule != "" {
		if f.Prefix != "" {
			return q, badRequest("prefix is %.64q, must be empty with a schedule", f.Prefix)
		}
		q.Prefix = durable.OccurrencePrefix(string(f.Schedule))
	}
	if err := q.Check(); err != nil {
		return q, badRequest("%v", err)
	}
	return q, nil
}

// cursorText formats a cursor: milliseconds, a dot and the encoded key.
func cursorText(c durable.Cursor) string {
	return strconv.FormatInt(int64(c.At), 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(c.Key))
}

func cursorOf(text string) (c durable.Cursor, err error) {
	if text == "" {
		return c, nil
	}
	at, key, _ := strings.Cut(text, ".")
	ms, err := strconv.ParseInt(at, 10, 64)
	k, keyErr := base64.RawURLEncoding.DecodeString(key)
	if err != nil || keyErr != nil || ms < 0 || durable.Millis(ms) > durable.MaxMillis || len(k) > durable.MaxKey {
		return c, badRequest("after is %.64q, must be the next of a reply", text)
	}
	return durable.Cursor{At: durable.Millis(ms), Key: string(k)}, nil
}

func limitOf(q url.Values) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, badRequest("limit is %.64q, must be 1 to %d", text, maxLimit)
	}
	return n, nil
}

// listing is a page of a list.
type listing[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // the next page's after; "" on the last page
	// Partial reports whether the time limit ended the page early. Next then continues where
	// reading stopped.
	Partial bool `json:"partial,omitempty"`
}

func (c *Console) listTimers(r *http.Request) (any, error) {
	values := r.URL.Query()
	f, err := filterOf(values)
	if err != nil {
		return nil, err
	}
	q, err := f.query()
	if err != nil {
		return nil, err
	}
	if q.After, err = cursorOf(values.Get("after")); err != nil {
		return nil, err
	}
	limit, err := limitOf(values)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readFor)
	defer cancel()
	page := listing[timer]{Items: []timer{}}
	last, scanned := q.After, q.After
	q.Scanned = func(c durable.Cursor) { scanned = c }
	for info, err := range c.timers.List(ctx, q) {
		if err != nil {
			if scanned = later(last, scanned); scanned == q.After || ctx.Err() == nil {
				return nil, slow(ctx, err)
			}
			page.Next, page.Partial = cursorText(scanned), true
			return page, nil
		}
		if len(page.Items) == limit {
			page.Next = cursorText(last)
			return page, nil
		}
		page.Items = append(page.Items, timerOf(info))
		last = info.Cursor()
	}
	return page, nil
}

// later returns the later of two cursors.
func later(a, b durable.Cursor) durable.Cursor {
	if cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Key, b.Key)) > 0 {
		return a
	}
	return b
}

// slow replaces an error caused by the time limit with an error that says so.
func slow(ctx context.Context, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return &failure{
		Status:  http.StatusServiceUnavailable,
		Message: "the store has not answered in " + readFor.String(),
	}
}

// total is a count, or a lower bound if the time limit ended the count.
type total struct {
	Count   int  `json:"count"`
	AtLeast bool `json:"at_least,omitempty"`
}

func (c *Console) countTimers(r *http.Request) (any, error) {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	q, err := f.query()
	if err != nil {
		return nil, err
	}
	return c.count(r.Context(), q)
}

// count counts for at most readFor. If the time is up, it pings the store: without a reply nothing
// was counted, and count returns the error.
func (c *Console) count(ctx context.Context, q durable.Query) (t total, err error) {
	counting, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	if t.Count, err = c.timers.Count(counting, q); err == nil || !errors.Is(counting.Err(), context.DeadlineExceeded) {
		return t, err
	}
	t.AtLeast = true
	ctx, cancel = context.WithTimeout(ctx, pollFor)
	defer cancel()
	return t, c.timers.Ping(ctx)
}

func (c *Console) getTimer(r *http.Request) (any, error) {
	var k rawKey
	if err := k.UnmarshalText([]byte(r.URL.Query().Get("key"))); err != nil {
		return nil, err
	}
	key, err := timerKey(k)
	if err != nil {
		return nil, err
	}
	info, err := c.timers.Get(r.Context(), key)
	if err != nil {
		return nil, err
	}
	t := timerOf(info)
	t.Body = c.bodyOf(info.Topic, info.Body)
	return t, nil
}

// moveTo is the new due time of a reset: At, or else AfterMS milliseconds from now; 0 is now.
type moveTo struct {
	At      time.Time `json:"at,omitzero"`
	AfterMS int64     `json:"after_ms,omitempty"`
}

// maxAfter is ten years, as long as the longest period of a schedule.
const maxAfter = 3650 * 24 * time.Hour

func (m moveTo) check(action string) error {
	switch {
	case action != "reset" && m != (moveTo{}):
		return badRequest("at and after_ms are for reset, must not be set for %s", action)
	case !m.At.IsZero() && m.AfterMS != 0:
		return badRequest("after_ms is %d, must be 0 with at", m.AfterMS)
	case m.AfterMS < 0 || m.AfterMS > maxAfter.Milliseconds():
		return badRequest("after_ms is %d, must be 0 to %d", m.AfterMS, maxAfter.Milliseconds())
	case !m.At.IsZero() && (m.At.UnixMilli() < 0 || m.At.UnixMilli() > int64(durable.MaxMillis)):
		return badRequest("at is %v, must be %v to %v", m.At, durable.Millis(0).Time(), durable.MaxMillis.Time())
	}
	return nil
}

func (m moveTo) after() time.Duration { return time.Duration(m.AfterMS) * time.Millisecond }

// result is the result of an action on one timer.
type result struct {
	Key    rawKey `json:"key"`
	Text   string `json:"text"`
	Result string `json:"result"` // the engine's word, or "failed"
	Error  string `json:"error,omitempty"`
}

// actionReply has the results of an action on several timers. For a purge it has only the number of
// removed timers.
type actionReply struct {
	Changed int      `json:"changed"`
	Of      int      `json:"of"`
	Results []result `json:"results,omitempty"`
	Error   string   `json:"error,omitempty"` // of the first failed timer, or of the action
}

func (c *Console) changeTimers(r *http.Request) (any, error) {
	action := r.PathValue("action")
	var request struct {
		Keys []rawKey `json:"keys"`
		moveTo
	}
	if err := readJSON(r, &request); err != nil {
		return nil, err
	}
	if n := len(request.Keys); n < 1 || n > maxKeys {
		return nil, badRequest("keys has %d keys, must have 1 to %d", n, maxKeys)
	}
	if err := request.check(action); err != nil {
		return nil, err
	}
	keys := make([]string, len(request.Keys))
	for i, k := range request.Keys {
		var err error
		if keys[i], err = timerKey(k); err != nil {
			return nil, err
		}
	}
	reply := actionReply{Of: len(keys)}
	switch action {
	case "cancel":
		c.each(r.Context(), keys, &reply, func(ctx context.Context, key string) (string, bool, error) {
			result, err := c.timers.Cancel(ctx, key)
			return result.String(), result != durable.NotFound, err
		})
	case "reset":
		c.each(r.Context(), keys, &reply, func(ctx context.Context, key string) (string, bool, error) {
			var result durable.MoveResult
			var err error
			if request.At.IsZero() {
				result, err = c.timers.Reset(ctx, key, request.after())
			} else {
				result, err = c.timers.ResetAt(ctx, key, request.At)
			}
			return result.String(), result == durable.Moved, err
		})
	case "requeue":
		results, err := c.timers.Requeue(r.Context(), keys...)
		for i, one := range results {
			word := one.String()
			switch one {
			case 0:
				word = "failed"
			case durable.Requeued:
				reply.Changed++
			}
			reply.Results = append(reply.Results, resultOf(keys[i], word))
		}
		reply.fail(err)
	case "purge":
		n, err := c.timers.Purge(r.Context(), keys...)
		reply.Changed = n
		reply.fail(err)
	default:
		return nil, badRequest("the action is %.64q, must be cancel, reset, requeue or purge", action)
	}
	args := []any{"timers", len(keys), "changed", reply.Changed}
	if len(keys) == 1 {
		args = append(args, "key", durable.KeyText(keys[0]))
	}
	if reply.Error != "" {
		args = append(args, "error", reply.Error)
	}
	c.log(r, action, args...)
	return reply, nil
}

func (a *actionReply) fail(err error) {
	if err != nil && a.Error == "" {
		a.Error = readable(err.Error())
	}
}

func resultOf(key, word string) result {
	return result{Key: rawKey(key), Text: readable(durable.KeyText(key)), Result: word}
}

// inFlight bounds the concurrent calls to the engine of one action.
const inFlight = 8

// each calls f for each key. f returns the engine's word for the result, and whether it changed the
// timer.
func (c *Console) each(ctx context.Context, keys []string, reply *actionReply, f func(ctx context.Context, key string) (string, bool, error)) {
	reply.Results = make([]result, len(keys))
	var (
		group sync.WaitGroup
		mu    sync.Mutex // guards reply, except for Results
		next  int        // guarded by mu
	)
	for range min(inFlight, len(keys)) {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(keys) {
					return
				}
				word, changed, err := f(ctx, keys[i])
				if err != nil {
					word, changed = "failed", false
				}
				reply.Results[i] = resultOf(keys[i], word)
				mu.Lock()
				if err != nil {
					reply.Results[i].Error = readable(err.Error())
					reply.fail(err)
				} else if changed {
					reply.Changed++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
}
