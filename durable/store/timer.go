package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// Millis is a point in time by the engine's clock, in milliseconds since 1970. In
// a [Horizon] and in optional fields 0 means none.
type Millis int64

// MillisAt rounds t up, so that nothing is early.
func MillisAt(t time.Time) Millis {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return Millis(ms)
}

// Time returns m as a time.Time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// MillisOf rounds a duration up to milliseconds; one below zero is 0.
func MillisOf(d time.Duration) Millis {
	if d <= 0 {
		return 0
	}
	return Millis((d-1)/time.Millisecond) + 1
}

// ID names one timer: it is made when the timer is scheduled, and is the same in
// all its attempts. Handlers are idempotent by it.
type ID [16]byte

// Token is what a worker draws for a claim: a hash of the worker's name, and a random half. It
// tells one holder of a lease from another even if an engine that lost writes gives out a fence
// twice, and it tells who the holder is.
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

// HashOfWorker returns what the tokens of a worker have in common.
func HashOfWorker(name string) uint64 { return hash(name) }

// Worker returns the hash of the name of the worker that drew t.
func (t Token) Worker() uint64 { return binary.BigEndian.Uint64(t[:8]) }

func (id ID) String() string   { return hex.EncodeToString(id[:]) }
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// State is a timer's home.
type State uint8

// The homes of a timer.
const (
	Waiting State = iota + 1 // for its due time, the first or that of a retry
	Leased                   // to a worker, whether or not the lease has run out
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
	Due       Millis // waiting: when it may be claimed; else when it could be
	Attempts  int    // claims that count; those handed back or snoozed do not
	LastError string // of the last attempt that failed; a lease that ran out leaves it

	LeaseEnd     Millis // leased
	Fence        uint64 // leased
	Token        Token  // leased: that of the claim
	Cancelled    bool   // leased: the run ends with nothing after it
	SuccessorDue Millis // leased: when its successor is due; 0: it has none
	Died         Millis // dead

	History *History // of a plan; nil for timers
}

// Entry is a timer to schedule.
type Entry struct {
	Key   string
	ID    ID
	Topic string
	Body  []byte
	// At is when it is due. If it is 0 the timer is due After from the engine's
	// present. What is past is due at once.
	At    Millis
	After time.Duration
	// IfAbsent refuses a key that is waiting, leased or dead.
	IfAbsent bool
}

// ReceiptKind is what became of an Entry.
type ReceiptKind uint8

// What becomes of an Entry.
const (
	Created      ReceiptKind = iota + 1 // the key was absent
	Replaced                            // a waiting timer; attempts begin at 0
	ReplacedDead                        // a dead letter
	Succeeds                            // it is the successor of a leased timer, instead of one that may have been
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
	// Cancelled means that it was waiting, for its first attempt or another, and is gone. No
	// handler will run.
	Cancelled CancelResult = iota + 1
	// Running means that it is leased, whether or not the lease has run out. It is marked: it
	// will not be retried nor leased again, and its successor is gone.
	Running
	// NotFound means that there is no such timer, or it is dead.
	NotFound
)

var cancelNames = [...]string{"", "cancelled", "running", "not found"}

func (r CancelResult) String() string { return nameOf("CancelResult", cancelNames[:], uint8(r)) }

// Move gives a waiting timer another due time: At, or else After from the engine's
// present.
type Move struct {
	Key   string
	At    Millis
	After time.Duration
}

// MoveResult answers a Move.
type MoveResult uint8

// What becomes of a Move.
const (
	Moved       MoveResult = iota + 1 // attempts are kept
	MoveRunning                       // it is leased; nothing was changed
	MoveAbsent                        // there is no such timer, or it is dead
)

var moveNames = [...]string{"", "moved", "running", "absent"}

func (r MoveResult) String() string { return nameOf("MoveResult", moveNames[:], uint8(r)) }

// RequeueResult answers a Requeue.
type RequeueResult uint8

// What becomes of a dead letter.
const (
	Requeued      RequeueResult = iota + 1 // it waits, attempts from 0
	RequeueLives                           // the key is waiting or leased; nothing was changed
	RequeueAbsent                          // there is no such dead letter
)

var requeueNames = [...]string{"", "requeued", "lives", "absent"}

func (r RequeueResult) String() string { return nameOf("RequeueResult", requeueNames[:], uint8(r)) }

// Claim is a request for leases on what is due.
type Claim struct {
	Worker string // who claims
	// Token is drawn for this claim, by NewToken. A claim that is sent again, because its reply
	// was lost, has the same Token and gets the same leases, as far as they are leased
	// still.
	Token Token
	Max   int // timers, at least 1
	// Plans is how many plans are leased besides: those that are due, and those whose leases
	// have run out, before any timer. Their bodies have the bound of MaxBytes for themselves.
	Plans int
	// MaxBytes bounds the bodies, all together: the next in turn that does not fit
	// ends the claim. One timer is leased whatever its size.
	MaxBytes int
	Lease    time.Duration
	// MaxAttempts: what was leased so often already, and whose lease has run out,
	// becomes a dead letter instead of being leased again.
	MaxAttempts int
	// FirstLane is the lane to begin with: one timer is taken from each in turn,
	// and then one from the leases that have run out, by lease end, as if they were
	// one more lane, so that none takes all the room while another waits. Lanes begins
	// with these, and then takes lanes 0 to 3: a worker with room for one timer at a
	// time would never come to them otherwise, while lanes are not empty.
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
	End       Millis   // when the lease runs out
	History   *History // of a plan
}

// Holder is what a worker shows for a lease. Fence is higher than those of all
// earlier claims in the shard.
type Holder struct {
	Key   string
	Fence uint64
	Token Token
}

// Claimed answers a Claim.
type Claimed struct {
	Leases []Lease
	// Buried are the timers that became dead letters, because their leases had run
	// out in their last attempt.
	Buried int
	// Repaired are the records that were found in no home, or in a home without a
	// record, and were removed: what an engine left that lost writes.
	Repaired int
}

// ExtendResult answers an Extend.
type ExtendResult uint8

// What becomes of a lease.
const (
	Extended        ExtendResult = iota + 1
	ExtendCancelled              // the timer was cancelled: the lease stays as it is, and the run should end
	ExtendLost                   // another holds it, or it is gone
)

var extendNames = [...]string{"", "extended", "cancelled", "lost"}

func (r ExtendResult) String() string { return nameOf("ExtendResult", extendNames[:], uint8(r)) }

// EndKind is how a run ends.
type EndKind uint8

// The ways in which a run ends.
const (
	Done     EndKind = iota + 1 // gone
	Retry                       // waits for Delay; the attempt counts
	Snooze                      // waits for Delay; the attempt does not count
	GiveBack                    // waits, due as before; the attempt does not count
	Bury                        // a dead letter
)

var endNames = [...]string{"", "done", "retry", "snooze", "give back", "bury"}

func (k EndKind) String() string { return nameOf("EndKind", endNames[:], uint8(k)) }

// End ends a run. If the timer was cancelled meanwhile it is gone, however the run
// ends; if it has a successor that waits, and the timer itself is gone, cancelled or
// not; the result says which of these it was.
type End struct {
	Holder
	Kind  EndKind
	Delay time.Duration // Retry, Snooze: from the engine's present
	Error string        // Retry, Bury: at most MaxError bytes are kept
}

// EndResult answers an End.
type EndResult uint8

// What becomes of an End.
const (
	Ended        EndResult = iota + 1 // as its kind says; with Bury the timer is a dead letter
	EndLost                           // another holds it, or it is gone; nothing was changed
	EndCancelled                      // the timer was cancelled, and is gone, whatever the kind
	EndReplaced                       // the timer is gone, whatever the kind, and its successor waits
)

var endResultNames = [...]string{"", "ended", "lost", "cancelled", "replaced"}

func (r EndResult) String() string { return nameOf("EndResult", endResultNames[:], uint8(r)) }

// Horizon is when a shard has something to do next, by the engine's clock.
type Horizon struct {
	Now          Millis
	NextDue      Millis // of its waiting timers, the earliest; 0: none waits
	NextLeaseEnd Millis // of its leases, the earliest; 0: there is none
}

// Cursor is a place in a shard's order of due times, or of deaths.
type Cursor struct {
	At  Millis
	Key string
}

// Stats are a shard's counts.
type Stats struct {
	Horizon
	Waiting int // timers
	Overdue int // of these, due
	Leased  int // timers and plans
	Dead    int
	Dropped uint64 // dead letters that MaxDead or MaxDeadAge removed, ever
	// Scheduled counts the timers that Schedule has accepted, successors and replacements
	// included, and the occurrences that swaps have created. In an engine in one process it
	// begins at 0 when the store is opened.
	Scheduled uint64

	Plans        int // whether they wait or are leased
	PlansOverdue int // that wait, and are due
}

// EventKind is what an Event tells.
type EventKind uint8

const (
	// Earlier means that the shard has something to do at Due, earlier than before.
	Earlier EventKind = iota + 1
	// Busy means that a worker has no room for what is due in the shard.
	Busy
	// CancelRun means that the run that Holder names was cancelled.
	CancelRun
	// Gap means that events may have been missed, of all shards; whoever depends on them
	// looks for itself.
	Gap
)

// Event is an announcement. They are hints: one may be lost, or come twice.
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
