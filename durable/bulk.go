package durable

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// BulkAction is the action of a [Bulk] on each timer.
type BulkAction uint8

// The bulk actions.
const (
	BulkCancel  BulkAction = iota + 1 // as Timers.Cancel
	BulkReset                         // as Timers.Reset or ResetAt
	BulkRequeue                       // as Timers.Requeue
	BulkPurge                         // as Timers.Purge
)

var bulkNames = [...]string{"", "cancel", "reset", "requeue", "purge"}

func (a BulkAction) String() string {
	if a == 0 || int(a) >= len(bulkNames) {
		return fmt.Sprintf("BulkAction(%d)", uint8(a))
	}
	return bulkNames[a]
}

// Bulk changes all timers that match a filter.
type Bulk struct {
	Action BulkAction
	// State is Waiting, the default, or Leased for BulkCancel. The other actions apply to one
	// state: BulkReset to waiting timers, BulkRequeue and BulkPurge to dead letters.
	State State
	Filter
	// At, or else After from when the action begins, is the new due time of BulkReset: the same
	// for all timers.
	At    time.Time
	After time.Duration
	// Resume continues an action that has ended early: set it to BulkProgress.Resume, and leave
	// all other fields zero.
	Resume string
}

// BulkProgress is the progress of a bulk action.
type BulkProgress struct {
	ShardsDone, Shards int
	Changed            int
	// Missed counts timers that matched when they were listed, and changed before the action
	// reached them. MissedKeys lists those since the last progress; BulkPurge lists none.
	Missed     int
	MissedKeys []string
	Resume     string // for Bulk.Resume; "" at the end
}

// Bulk carries out an action page by page, up to 500 timers at a time and one shard after the
// other, and returns an iterator over its progress: after each page, and at the end. Ending the
// loop early ends the action. So does an error of the engine, which comes with the progress before
// it; the changes of the last page are then unknown. The action can be resumed, because it skips
// timers that it has already changed.
//
// It changes the timers that match when it reaches them. BulkRequeue and BulkPurge skip timers
// that died after they began with the shard.
func (t *Timers) Bulk(ctx context.Context, b Bulk) iter.Seq2[BulkProgress, error] {
	return func(yield func(BulkProgress, error) bool) {
		s, err := b.state()
		if err == nil && s.Shard >= len(t.schedules) {
			err = errors.New("durable: Bulk.Resume is of a store with more shards")
		}
		if err != nil {
			yield(BulkProgress{}, err)
			return
		}
		for s.Shard < len(t.schedules) {
			missed, err := t.bulkPage(ctx, &s)
			p := BulkProgress{
				ShardsDone: s.Shard, Shards: len(t.schedules), Changed: s.Changed, Missed: s.Missed, MissedKeys: missed,
			}
			if s.Shard < len(t.schedules) {
				p.Resume = s.text()
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// bulkState is the state with which an action continues.
type bulkState struct {
	Action BulkAction
	State  State
	Filter Filter
	After  time.Duration // BulkReset
	Due    Millis        // BulkReset: the due time of all moved timers; 0: not begun
	Shard  int
	Begun  Millis // when the action reached the shard, by the engine's clock; 0: not yet
	Next   Cursor // in the shard

	Changed, Missed int
}

func (b Bulk) state() (s bulkState, err error) {
	if b.Resume != "" {
		rest := b
		rest.Resume = ""
		if rest != (Bulk{}) {
			return s, errors.New("durable: Bulk.Resume is set, all other fields must be zero")
		}
		text, err := base64.RawURLEncoding.DecodeString(b.Resume)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil || s.Shard < 0 {
			return s, fmt.Errorf("durable: Bulk.Resume is %.64q, must be what BulkProgress.Resume was", b.Resume)
		}
		b = Bulk{Action: s.Action, State: s.State, Filter: s.Filter}
	} else {
		s = bulkState{Action: b.Action, State: b.State, Filter: b.Filter, After: b.After}
	}
	switch b.Action {
	case BulkCancel:
		if s.State == 0 {
			s.State = Waiting
		}
		if s.State != Waiting && s.State != Leased {
			return s, fmt.Errorf("durable: Bulk.State is %v, must be waiting or leased for cancel", b.State)
		}
	case BulkReset:
		s.State = Waiting
	case BulkRequeue, BulkPurge:
		s.State = Dead
	default:
		return s, fmt.Errorf("durable: Bulk.Action is %v, must be cancel, reset, requeue or purge", b.Action)
	}
	if b.State != 0 && b.State != s.State {
		return s, fmt.Errorf("durable: Bulk.State is %v, must be %v for %v", b.State, s.State, b.Action)
	}
	if b.Action == BulkReset && !b.At.IsZero() {
		if s.Due, err = millisOf("", b.At); err != nil {
			return s, err
		}
	}
	q := s.query()
	return s, q.Check()
}

func (s *bulkState) text() string {
	text, _ := json.Marshal(s) // it has only strings and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}

func (s *bulkState) query() store.Query {
	return store.Query{State: s.State, After: s.Next, Limit: store.MaxItems, Filter: s.Filter}
}

// appliesTo reports whether the action applies to a timer that matches: not if it has changed the
// timer, nor if a dead letter died after the action began.
func (s *bulkState) appliesTo(r *store.Record) bool {
	switch s.Action {
	case BulkReset:
		return r.Due != s.Due
	case BulkRequeue, BulkPurge:
		return r.Died < s.Begun // in the same millisecond, it may have been requeued by the action
	}
	return !r.Cancelled
}

// bulkPage carries out an action for one page.
func (t *Timers) bulkPage(ctx context.Context, s *bulkState) (missed []string, err error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if s.Begun == 0 {
		h, err := t.store.Horizons(ctx, []int{s.Shard})
		if err != nil {
			return nil, err
		}
		s.Begun = h[0].Now
		if s.Action == BulkReset && s.Due == 0 {
			s.Due = store.After(s.Begun, s.After)
		}
	}
	page, err := t.store.List(ctx, s.Shard, s.query())
	if err != nil {
		return nil, err
	}
	var keys []string
	for i := range page.Records {
		if r := &page.Records[i]; s.appliesTo(r) {
			keys = append(keys, r.Key)
		}
	}
	if len(keys) > 0 {
		changed, err := t.bulkChange(ctx, s, keys, &missed)
		if err != nil {
			return nil, err
		}
		s.Changed += changed
		s.Missed += len(keys) - changed
	}
	if s.Next = page.Next; !page.More || s.State == Dead && s.Next.At >= s.Begun {
		s.Shard, s.Begun, s.Next = s.Shard+1, 0, Cursor{}
	}
	return missed, nil
}

// bulkChange carries out an action for some timers of one shard, and returns how many it changed.
func (t *Timers) bulkChange(ctx context.Context, s *bulkState, keys []string, missed *[]string) (changed int, err error) {
	count := func(i int, ok bool) {
		if ok {
			changed++
		} else {
			*missed = append(*missed, keys[i])
		}
	}
	switch s.Action {
	case BulkCancel:
		results, err := t.store.Cancel(ctx, s.Shard, keys)
		for i, r := range results {
			count(i, r != NotFound)
		}
		return changed, err
	case BulkReset:
		moves := make([]store.Move, len(keys))
		for i, key := range keys {
			moves[i] = store.Move{Key: key, At: s.Due}
		}
		results, _, err := t.store.Reschedule(ctx, s.Shard, moves)
		for i, r := range results {
			count(i, r == Moved)
		}
		return changed, err
	case BulkRequeue:
		results, _, err := t.store.Requeue(ctx, s.Shard, keys)
		for i, r := range results {
			count(i, r == Requeued)
		}
		return changed, err
	}
	return t.store.Purge(ctx, s.Shard, keys)
}

// Count returns how many timers match a query, whatever its After is; with an error, how many it
// has counted. Without a Filter the engine knows the count; with one, Count costs as much as a
// List of all shards.
func (t *Timers) Count(ctx context.Context, q Query) (n int, err error) {
	q.After = Cursor{}
	query := q.stored()
	if err := query.Check(); err != nil {
		return 0, err
	}
	for shard := range t.schedules {
		some, err := t.countShard(ctx, shard, query)
		if n += some; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (t *Timers) countShard(ctx context.Context, shard int, q store.Query) (n int, err error) {
	for more := true; more; {
		ctx, cancel, err := t.begin(ctx)
		if err != nil {
			return n, err
		}
		if q.Filter == (Filter{}) && q.State != Leased { // leased records include plans
			st, err := t.store.Stats(ctx, shard)
			cancel()
			if q.State == Dead {
				return st.Dead, err
			}
			return st.Waiting, err
		}
		page, err := t.store.List(ctx, shard, q)
		cancel()
		if err != nil {
			return n, err
		}
		n += len(page.Records)
		q.After, more = page.Next, page.More
	}
	return n, nil
}
