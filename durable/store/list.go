package store

import (
	"fmt"
	"strings"
)

// Query requests a page of the timers in one state, in order: waiting ones by due time, leased
// ones by the end of the lease, dead letters by time of death; then by key.
type Query struct {
	State State
	After Cursor // the zero Cursor comes before all
	Limit int    // records, 1 to MaxItems
	Filter
}

// Filter selects timers. The zero Filter selects all.
type Filter struct {
	Prefix string // of the key
	Topic  string // "": any
	Error  string // a substring of the last error; the case of ASCII letters does not matter
}

// MaxScan is the maximum number of timers that an engine scans for one page.
const MaxScan = 1000

// ScanLimit returns the maximum number of timers that the engine scans for the page.
func (q *Query) ScanLimit() int {
	if q.Filter == (Filter{}) {
		return q.Limit
	}
	return MaxScan
}

// Page answers a Query. An empty page can be followed by others.
type Page struct {
	Records []Record // without bodies
	Next    Cursor   // the cursor of the next page
	More    bool     // there may be more after Next
}

// Matches reports whether a timer matches the filter.
func (f *Filter) Matches(key, topic, lastError string) bool {
	return strings.HasPrefix(key, f.Prefix) && (f.Topic == "" || f.Topic == topic) &&
		(f.Error == "" || strings.Contains(LowerASCII(lastError), LowerASCII(f.Error)))
}

// LowerASCII returns s with its ASCII letters in lower case and all other bytes unchanged.
func LowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// At returns the time by which a Query orders the record.
func (r *Record) At() Millis {
	switch r.State {
	case Leased:
		return r.LeaseEnd
	case Dead:
		return r.Died
	}
	return r.Due
}

// Check refuses a query that is out of bounds.
func (q *Query) Check() error {
	switch {
	case q.State < Waiting || q.State > Dead:
		return fmt.Errorf("durable: Query.State is %v, must be waiting, leased or dead", q.State)
	case q.Limit < 1 || q.Limit > MaxItems:
		return fmt.Errorf("durable: Query.Limit is %d, must be 1 to %d", q.Limit, MaxItems)
	case q.After.At < 0 || q.After.At > MaxMillis || len(q.After.Key) > MaxKey:
		return fmt.Errorf("durable: Query.After is %d ms and a key of %d bytes, must be 0 to %d and at most %d",
			q.After.At, len(q.After.Key), MaxMillis, MaxKey)
	case len(q.Prefix) > MaxKey:
		return fmt.Errorf("durable: Query.Prefix is %d bytes long, must be at most %d", len(q.Prefix), MaxKey)
	case len(q.Topic) > MaxTopic:
		return fmt.Errorf("durable: Query.Topic is %d bytes long, must be at most %d", len(q.Topic), MaxTopic)
	case len(q.Error) > MaxError:
		return fmt.Errorf("durable: Query.Error is %d bytes long, must be at most %d", len(q.Error), MaxError)
	}
	return nil
}
