package store

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/internal/sentinel"
)

// The bounds of the data that passes through a store.
const (
	MaxKey    = 512      // bytes of a key, at least 1; any bytes
	MaxTopic  = 128      // bytes of a topic, 0 included; any bytes
	MaxBody   = 64 << 10 // bytes of a body, 0 included; any bytes
	MaxError  = 1 << 10  // bytes kept of a last error
	MaxWorker = 128      // bytes of a worker's name, at least 1
	MaxStatus = 4 << 10  // bytes of a worker's status, 0 included; any bytes
	MaxItems  = 500      // items of one call
	MaxShards = 1024
	MaxClaim  = 1 << 20 // bytes of bodies that one claim returns, unless the first is larger

	// MinLease and MaxLease bound a lease: below, heartbeats would be too frequent; above, a dead
	// worker's timers would wait too long.
	MinLease = 100 * time.Millisecond
	MaxLease = 24 * time.Hour

	// MaxMillis is the latest due time, in the year 2262.
	MaxMillis = Millis(math.MaxInt64 / int64(time.Millisecond))
)

var (
	// ErrClosed is returned by a store that was closed, or that closed itself because it could not
	// write.
	ErrClosed = sentinel.Closed("durable: store is closed")
	// ErrNotFound is returned by Get for a key without a timer or schedule.
	ErrNotFound = errors.New("durable: no such timer or schedule")
	// ErrFull is returned if MaxPending refuses a timer, or Redis is at maxmemory.
	ErrFull = sentinel.Full("durable: no more timers can be held")
	// ErrUnsure is returned when the engine did not answer, so a change may or may not have been
	// made.
	ErrUnsure = errors.New("durable: the engine did not answer; the change may have been made")
	// ErrUnconfirmed is returned when a change was made and fewer replicas than requested have
	// confirmed it.
	ErrUnconfirmed = errors.New("durable: the change was made, and too few replicas confirmed it")
	// ErrShards is returned on opening a store that has a different number of shards.
	ErrShards = errors.New("durable: the store has another number of shards")
)

// Limits bound the contents of a store. They apply to each shard, and are not stored: processes
// that share a store should use the same limits.
type Limits struct {
	// MaxPending bounds the waiting and leased timers of each shard, including successors and
	// plans. At the bound, Schedule answers Refused for a key that is neither waiting nor leased,
	// even if it has a dead letter. A successor and a Requeue are never refused. Default 0: no
	// bound except the engine's.
	MaxPending int
	// MaxDead bounds the dead letters of each shard: the oldest are removed, and counted as
	// Dropped. Default 10,000.
	MaxDead int
	// MaxDeadAge is the minimum time for which a dead letter is kept. Default 0: forever.
	MaxDeadAge time.Duration
}

// WithDefaults sets defaults for zero fields and refuses values out of range.
func (l Limits) WithDefaults() (Limits, error) {
	if l.MaxDead == 0 {
		l.MaxDead = 10_000
	}
	switch {
	case l.MaxPending < 0:
		return l, fmt.Errorf("durable: Limits.MaxPending is %d, must be 0 (no bound) or more", l.MaxPending)
	case l.MaxDead < 0:
		return l, fmt.Errorf("durable: Limits.MaxDead is %d, must be 1 or more, or 0 for 10,000", l.MaxDead)
	case l.MaxDeadAge < 0:
		return l, fmt.Errorf("durable: Limits.MaxDeadAge is %v, must be 0 (no bound) or more", l.MaxDeadAge)
	}
	return l, nil
}

// Check refuses an entry that is out of bounds.
func (e Entry) Check() error {
	if err := CheckKey(e.Key); err != nil {
		return err
	}
	if IsPlan(e.Key) {
		return fmt.Errorf("durable: the key of timer %s ends with a zero byte, as only a plan's does", quote(e.Key))
	}
	if len(e.Topic) > MaxTopic {
		return fmt.Errorf("durable: the topic of timer %s is %d bytes long, must be at most %d", quote(e.Key), len(e.Topic), MaxTopic)
	}
	if len(e.Body) > MaxBody {
		return fmt.Errorf("durable: the body of timer %s is %d bytes long, must be at most %d", quote(e.Key), len(e.Body), MaxBody)
	}
	return checkAt("timer "+quote(e.Key), e.At)
}

// Check refuses a move that is out of bounds.
func (m Move) Check() error {
	if err := CheckKey(m.Key); err != nil {
		return err
	}
	return checkAt("timer "+quote(m.Key), m.At)
}

func checkAt(what string, at Millis) error {
	if at < 0 || at > MaxMillis {
		return fmt.Errorf("durable: %s is due at %d ms after 1970, must be at 0 to %d", what, int64(at), int64(MaxMillis))
	}
	return nil
}

// CheckKey refuses a key that is out of bounds.
func CheckKey(key string) error {
	if n := len(key); n < 1 || n > MaxKey {
		return fmt.Errorf("durable: a timer's key is %d bytes long, must be 1 to %d", n, MaxKey)
	}
	return nil
}

// Check refuses a claim that is out of bounds.
func (c Claim) Check() error {
	switch {
	case len(c.Worker) < 1 || len(c.Worker) > MaxWorker:
		return fmt.Errorf("durable: a worker's name is %d bytes long, must be 1 to %d", len(c.Worker), MaxWorker)
	case c.Max < 1 || c.Max > MaxItems:
		return fmt.Errorf("durable: Claim.Max is %d, must be 1 to %d", c.Max, MaxItems)
	case c.MaxBytes < 1 || c.MaxBytes > MaxClaim:
		return fmt.Errorf("durable: Claim.MaxBytes is %d, must be 1 to %d", c.MaxBytes, MaxClaim)
	case c.Lease < MinLease || c.Lease > MaxLease:
		return fmt.Errorf("durable: Claim.Lease is %v, must be %v to %v", c.Lease, MinLease, MaxLease)
	case c.MaxAttempts < 1:
		return fmt.Errorf("durable: Claim.MaxAttempts is %d, must be 1 or more", c.MaxAttempts)
	case c.Plans < 0 || c.Plans > MaxItems:
		return fmt.Errorf("durable: Claim.Plans is %d, must be 0 to %d", c.Plans, MaxItems)
	case c.FirstLane < 0 || c.FirstLane > Lanes:
		return fmt.Errorf("durable: Claim.FirstLane is %d, must be 0 to %d", c.FirstLane, Lanes)
	}
	return nil
}

// Due returns the due time of an entry that an engine receives at now; see [After].
func (e Entry) Due(now Millis) Millis { return due(e.At, e.After, now) }

// Due returns the due time of a timer that is moved at now; see [After].
func (m Move) Due(now Millis) Millis { return due(m.At, m.After, now) }

func due(at Millis, after time.Duration, now Millis) Millis {
	if at != 0 {
		return at
	}
	return After(now, after)
}

// After returns the time d after now, rounded up, at most MaxMillis. If d is positive, an engine
// passes its present rounded up: otherwise a timer could be early, and a lease could end early, by
// a fraction of a millisecond. If d is zero or less, it passes its present rounded down, so that
// the timer is due at once.
func After(now Millis, d time.Duration) Millis { return min(now+MillisOf(d), MaxMillis) }

// CutError cuts the text of an error to MaxError bytes, at a character boundary.
func CutError(s string) string {
	if len(s) <= MaxError {
		return s
	}
	n := MaxError
	for n > MaxError-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// quote quotes a key for an error: at most 64 bytes of it.
func quote(key string) string {
	if len(key) > 64 {
		key = strings.ToValidUTF8(key[:64], "") + "…"
	}
	return fmt.Sprintf("%q", key)
}
