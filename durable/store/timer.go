package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// Millis is a point in time by the engine's clock, in milliseconds since 1970. In a [Horizon] and
// in optional fields 0 means none.
type Millis int64

// MillisAt rounds t up, so that no timer is early.
func MillisAt(t time.Time) Millis {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return Millis(ms)
}

// Time returns m as a time.Time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// MillisOf rounds a duration up to milliseconds; a negative one is 0.
func MillisOf(d time.Duration) Millis {
	if d <= 0 {
		return 0
	}
	return Millis((d-1)/time.Millisecond) + 1
}

// ID names one timer: it is made when the timer is scheduled, and is the same in all its attempts.
// Handlers use it to be idempotent.
type ID [16]byte

// Token identifies a claim: half of it is a hash of the worker's name, and half is random. It tells
// one holder of a lease from another even if an engine that lost writes issues a fence twice, and
// it identifies the worker.
type Token [16]byte

// NewID returns a random ID.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// NewToken draws a Token for a worker.
func NewToken(worker string) (t Token) {
	binary.BigEndian.PutUint64(t[:8], HashOfWorker(worker))
	_, _ = rand.Read(t[8:])
	return t
}

// HashOfWorker returns the half that all tokens of a worker share.
func HashOfWorker(name string) uint64 { return hash(name) }

// Worker returns the hash of the name of the worker that drew t.
func (t Token) Worker() uint64 { return binary.BigEndian.Uint64(t[:8]) }

func (id ID) String() string   { return hex.EncodeToString(id[:]) }
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// State is the state of a timer.
type State uint8

// The states of a timer.
const (
	Waiting State = iota + 1 // for its due time, the first or that of a retry
	Leased                   // to a worker, whether or not the lease has expired
	Dead                     // a dead letter: kept, and not run
)

func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Leased:
		return "leased"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Record is a timer as [Store.Get] and [Store.List] return it.
type Record struct {
	Key   string
	ID    ID
	Topic string
	Body  []byte // nil from List

	State     State
	Due       Millis // waiting: when it may be claimed; else when it could
	Attempts  int    // claims that count; those released or snoozed do not
	LastError string // of the last attempt that failed; an expired lease does not change it

	LeaseEnd     Millis // leased
	Fence        uint64 // leased
	Token        Token  // leased: that of the claim
	Cancelled    bool   // leased: no attempt and no successor follows this run
	SuccessorDue Millis // leased: of its successor; 0: none
	Died         Millis // dead

	History *History // of a plan; nil for timers
}

// Entry is a timer to schedule.
type Entry struct {
	Key   string
	ID    ID
	Topic string
	Body  []byte
	// At is the due time. If it is 0 the timer is due After from the engine's present. A time in
	// the past is due at once.
	At    Millis
	After time.Duration
	// IfAbsent refuses a key that is waiting, leased or dead.
	IfAbsent bool
}

// ReceiptKind is the result of scheduling an Entry.
type ReceiptKind uint8

// The results of scheduling an Entry.
const (
	Created      ReceiptKind = iota + 1 // the key was absent
	Replaced                            // a waiting timer; attempts begin at 0
	ReplacedDead                        // a dead letter
	Succeeds                            // it is the successor of a leased timer, replacing any other one
	Exists                              // IfAbsent: nothing was changed
	Refused                             // MaxPending: nothing was changed
)

var receiptNames = [...]string{"", "created", "replaced", "replaced dead letter", "succeeds", "exists", "refused"}

func (k ReceiptKind) String() string { return nameOf("ReceiptKind", receiptNames[:], uint8(k)) }

// Receipt answers an Entry.
type Receipt struct {
	Kind ReceiptKind
	Due  Millis // by the engine's clock; 0 with Exists and Refused
}

// CancelResult answers a Cancel.
type CancelResult uint8

const (
	// Cancelled means that the timer was waiting, for its first or a later attempt, and is
	// removed. No handler will run.
	Cancelled CancelResult = iota + 1
	// Running means that the timer is leased, whether or not the lease has expired. It is marked:
	// it will not be retried nor leased again, and its successor is removed.
	Running
	// NotFound means that there is no such timer, or it is dead.
	NotFound
)

var cancelNames = [...]string{"", "cancelled", "running", "not found"}

func (r CancelResult) String() string { return nameOf("CancelResult", cancelNames[:], uint8(r)) }

// Move gives a waiting timer another due time: At, or else After from the engine's present.
type Move struct {
	Key   string
	At    Millis
	After time.Duration
}

// MoveResult answers a Move.
type MoveResult uint8

// The results of a Move.
const (
	Moved       MoveResult = iota + 1 // attempts are kept
	MoveRunning                       // it is leased; nothing was changed
	MoveAbsent                        // there is no such timer, or it is dead
)

var moveNames = [...]string{"", "moved", "running", "absent"}

func (r MoveResult) String() string { return nameOf("MoveResult", moveNames[:], uint8(r)) }

// RequeueResult answers a Requeue.
type RequeueResult uint8

// The results of a Requeue.
const (
	Requeued      RequeueResult = iota + 1 // it waits, with no attempts used
	RequeueExists                          // the key is waiting or leased; nothing was changed
	RequeueAbsent                          // there is no such dead letter
)

var requeueNames = [...]string{"", "requeued", "exists", "absent"}

func (r RequeueResult) String() string { return nameOf("RequeueResult", requeueNames[:], uint8(r)) }

// Claim requests leases on due timers.
type Claim struct {
	Worker string // the claiming worker
	// Token is drawn for this claim, by NewToken. A claim that is repeated because its reply was
	// lost has the same Token and gets those of its leases that still hold.
	Token Token
	Max   int // timers, at least 1
	// Plans is how many plans are leased in addition, before any timer: due ones, and those with
	// expired leases. MaxBytes applies to their bodies separately.
	Plans int
	// MaxBytes bounds the total size of the bodies: the claim ends at the first timer that does
	// not fit. One timer is leased whatever its size.
	MaxBytes int
	Lease    time.Duration
	// MaxAttempts is the number of attempts after which a timer whose lease has expired becomes a
	// dead letter instead of being leased again.
	MaxAttempts int
	// FirstLane is the lane to begin with. One timer is taken from each lane in turn, and then one
	// from the expired leases, by lease end, as if they were one more lane, so that no lane takes
	// all the capacity while another waits. The value Lanes begins with the expired leases,
	// followed by lanes 0 to 3: otherwise a worker with one free slot at a time would never reach
	// expired leases while lanes are not empty.
	FirstLane int
}

// Lease is a timer that was claimed.
type Lease struct {
	Holder
	ID        ID
	Topic     string
	Body      []byte
	Due       Millis
	Attempt   int // this one, from 1
	LastError string
	End       Millis   // when the lease expires
	History   *History // of a plan
}

// Holder is a worker's proof of a lease. Fence is higher than those of all earlier claims in the
// shard.
type Holder struct {
	Key   string
	Fence uint64
	Token Token
}

// Claimed answers a Claim.
type Claimed struct {
	Leases []Lease
	// DeadLettered is the number of timers that became dead letters because their leases expired in
	// their last attempt.
	DeadLettered int
	// Repaired is the number of inconsistent entries that were removed: records in no state, or
	// states without a record, left by an engine that lost writes.
	Repaired int
}

// ExtendResult answers an Extend.
type ExtendResult uint8

// The results of an Extend.
const (
	Extended        ExtendResult = iota + 1
	ExtendCancelled              // the timer was cancelled: the lease is not changed, and the run should end
	ExtendLost                   // another worker holds it, or the timer is removed
)

var extendNames = [...]string{"", "extended", "cancelled", "lost"}

func (r ExtendResult) String() string { return nameOf("ExtendResult", extendNames[:], uint8(r)) }

// OutcomeKind is the kind of an Outcome.
type OutcomeKind uint8

// The kinds of an Outcome.
const (
	Done       OutcomeKind = iota + 1 // removed
	Retry                             // waits for Delay; the attempt counts
	Snooze                            // waits for Delay; the attempt does not count
	Release                           // waits, due as before; the attempt does not count
	DeadLetter                        // becomes a dead letter
)

var outcomeNames = [...]string{"", "done", "retry", "snooze", "release", "dead-letter"}

func (k OutcomeKind) String() string { return nameOf("OutcomeKind", outcomeNames[:], uint8(k)) }

// Outcome is how a run ends. If the timer was cancelled during the run, it is removed, whatever the
// kind. If it has a successor, the successor waits, and the timer itself is removed, cancelled or
// not. The result tells which of these applied.
type Outcome struct {
	Holder
	Kind  OutcomeKind
	Delay time.Duration // Retry, Snooze: from the engine's present
	Error string        // Retry, DeadLetter: at most MaxError bytes are kept
}

// EndResult is the result of writing an Outcome.
type EndResult uint8

// The results of writing an Outcome.
const (
	Ended        EndResult = iota + 1 // as its kind says; with DeadLetter the timer is a dead letter
	EndLost                           // another worker holds it, or the timer is removed; nothing was changed
	EndCancelled                      // the timer was cancelled, and is removed, whatever the kind
	EndReplaced                       // the timer is removed, whatever the kind, and its successor waits
)

var endResultNames = [...]string{"", "ended", "lost", "cancelled", "replaced"}

func (r EndResult) String() string { return nameOf("EndResult", endResultNames[:], uint8(r)) }

// Horizon tells when a shard next has work, by the engine's clock.
type Horizon struct {
	Now          Millis
	NextDue      Millis // the earliest of its waiting timers; 0: none waits
	NextLeaseEnd Millis // the earliest end of its leases; 0: there is none
}

// Cursor is a position in a shard's order of due times, or of deaths.
type Cursor struct {
	At  Millis
	Key string
}

// Stats are a shard's counts.
type Stats struct {
	Horizon
	Waiting int // timers
	Overdue int // waiting timers that are due
	Leased  int // timers and plans
	Dead    int
	Dropped uint64 // dead letters that MaxDead or MaxDeadAge removed, ever
	// Scheduled counts the timers that Schedule has accepted, including successors and
	// replacements, and the occurrences that swaps have created. In an engine in one process it
	// begins at 0 when the store is opened.
	Scheduled uint64

	Plans        int // waiting or leased
	PlansOverdue int // waiting and due
}

// EventKind is the kind of an Event.
type EventKind uint8

const (
	// Earlier means that the shard next has work at Due, earlier than before.
	Earlier EventKind = iota + 1
	// Busy means that a worker has no free slot for timers that are due in the shard.
	Busy
	// CancelRun means that the run that Holder names was cancelled.
	CancelRun
	// Gap means that events of any shard may have been missed; subscribers that depend on them
	// must poll.
	Gap
)

// Event is an announcement. Events are hints: one may be lost, or arrive twice.
type Event struct {
	Kind   EventKind
	Shard  int
	Due    Millis // Earlier
	Holder Holder // CancelRun
	From   string // Busy: the worker
}

func nameOf(typ string, names []string, k uint8) string {
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("%s(%d)", typ, k)
	}
	return names[k]
}
