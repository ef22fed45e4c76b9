package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A schedule is stored as a plan: a timer whose key ends with a zero byte, whose body defines when
// occurrences are due, and which is itself due when the next of them must be created. An
// occurrence is an ordinary timer. Its key begins with that of its plan, so both are in one shard,
// and one call can create the occurrence and advance the plan.
//
// An engine treats a plan as a timer, with these differences:
//
//   - only [Store.SwapPlans] creates, changes and removes it; the other methods that change timers
//     do not get its key;
//   - a shard keeps its waiting plans in a separate lane ([PlanLane]); List does not list them,
//     and Stats counts them separately;
//   - a claim leases plans in addition to timers ([Claim].Plans), and never makes one a dead
//     letter;
//   - the swap that creates an occurrence can lease it, too ([SwapClaim]);
//   - the engine keeps a [History] with it.

// PlanLane is the lane of plans, after those of timers.
const PlanLane = Lanes

const planSuffix = "\x00"

// PlanKey returns the key of a schedule's plan.
func PlanKey(schedule string) string { return schedule + planSuffix }

// IsPlan reports whether a key is that of a plan.
func IsPlan(key string) bool { return strings.HasSuffix(key, planSuffix) }

// PlanOf returns the key of the plan that an occurrence belongs to; "" if the key is not an
// occurrence's.
func PlanOf(key string) string {
	if i := strings.IndexByte(key, 0); i >= 0 && i < len(key)-1 {
		return key[:i+1]
	}
	return ""
}

// ScheduleOf returns the key of the schedule that a plan or an occurrence belongs to; the key
// itself for other timers.
func ScheduleOf(key string) string {
	schedule, _, _ := strings.Cut(key, planSuffix)
	return schedule
}

// LaneOfKey returns the lane in which a timer or a plan waits.
func LaneOfKey(key, topic string) int {
	if IsPlan(key) {
		return PlanLane
	}
	return LaneOf(topic)
}

const (
	// MaxNotes is the number of ended occurrences that a History lists.
	MaxNotes = 10
	// MaxNoteError is the number of bytes of an error that a Note keeps.
	MaxNoteError = 100
	// MaxPlanEntries is the maximum number of occurrences that one swap creates.
	MaxPlanEntries = 100
)

// OccurrenceOutcome is how an occurrence has ended.
type OccurrenceOutcome uint8

// The outcomes of an occurrence.
const (
	OccurrenceDone      OccurrenceOutcome = iota + 1 // its handler returned nil
	OccurrenceDead                                   // it is a dead letter
	OccurrenceCancelled                              // it was cancelled, while it waited or ran
)

var occurrenceNames = [...]string{"", "done", "dead", "cancelled"}

func (o OccurrenceOutcome) String() string {
	return nameOf("OccurrenceOutcome", occurrenceNames[:], uint8(o))
}

// History counts and lists how the occurrences of a plan ended. The engine updates it in the step
// that ends an occurrence: by [Store.End], by Cancel, or by a claim that finds its lease expired
// in its last attempt. A dead letter that is requeued ends again, and counts again.
type History struct {
	Done, Dead, Cancelled uint64
	Last                  []Note // the last MaxNotes, the latest last
}

// Ended returns the number of ended occurrences.
func (h History) Ended() uint64 { return h.Done + h.Dead + h.Cancelled }

// Add counts n, and appends it to the last notes.
func (h *History) Add(n Note) {
	switch n.Outcome {
	case OccurrenceDone:
		h.Done++
	case OccurrenceDead:
		h.Dead++
	case OccurrenceCancelled:
		h.Cancelled++
	}
	if len(h.Last) == MaxNotes {
		h.Last = append(h.Last[:0:0], h.Last[1:]...)
	}
	h.Last = append(h.Last, n)
}

// Note describes one ended occurrence.
type Note struct {
	Key      string // of the occurrence
	Outcome  OccurrenceOutcome
	Begun    Millis // when its last attempt was claimed; 0 if it was not running when it ended
	Ended    Millis
	Attempts int
	Error    string // its last error; at most MaxNoteError bytes are kept
}

// Begun returns when the lease with the given fence was claimed: fences are microseconds since
// 1970 unless the clock was set back.
func Begun(fence uint64) Millis { return Millis(fence / 1000) }

// CutNote cuts an error's text to MaxNoteError bytes.
func CutNote(s string) string { return s[:min(len(s), MaxNoteError)] }

// Wake selects the ends of occurrences that make a waiting plan due at once. It applies to one
// end; the next swap sets it again.
type Wake uint8

// The kinds of Wake.
const (
	WakeNever  Wake = iota
	WakeOnDead      // an occurrence becomes a dead letter
	WakeOnEnd       // one ends in any way
)

// PlanSwap atomically creates, replaces or removes a plan, if it is unchanged since the caller
// read it, and schedules occurrences. The plan may be waiting or leased, to any worker: a swap
// ends the lease.
type PlanSwap struct {
	Key string // of the plan
	// Expected is the ID that the plan must have; zero: it must not exist. ID is its new ID, which
	// must be unused, so that a swap makes all swaps fail that were prepared before it. The zero ID
	// removes the plan and its History; the swap's other fields are then ignored.
	Expected, ID ID
	Body         []byte
	Due          Millis // when the plan is due next
	// Wake and Seen: if the History counts more than Seen of the ends that Wake selects, the plan
	// is due at once.
	Wake Wake
	Seen uint64
	// Entries are occurrences of the plan, at most MaxPlanEntries, with distinct keys. An entry
	// whose key exists is skipped. Their IfAbsent is ignored.
	Entries []Entry
}

// SwapClaim requests leases on occurrences that swaps create, so that no further call need claim
// them. The zero SwapClaim requests none.
type SwapClaim struct {
	// Token is drawn for this call, by NewToken. A call that is repeated because its reply was
	// lost has the same Token, and gets those of its leases that still hold, whatever the results
	// of the swaps are.
	Token Token
	Lease time.Duration
	// Max is the maximum number of leases: the first entries that are due when they are created
	// get them.
	Max int
}

// Check refuses a SwapClaim that is out of bounds.
func (c SwapClaim) Check() error {
	switch {
	case c == SwapClaim{}:
		return nil
	case c.Max < 0 || c.Max > MaxItems:
		return fmt.Errorf("durable: SwapClaim.Max is %d, must be 0 to %d", c.Max, MaxItems)
	case c.Token == Token{}:
		return errors.New("durable: SwapClaim.Token is zero, must be drawn for the call")
	case c.Lease < MinLease || c.Lease > MaxLease:
		return fmt.Errorf("durable: SwapClaim.Lease is %v, must be %v to %v", c.Lease, MinLease, MaxLease)
	}
	return nil
}

// SwapResult answers a PlanSwap.
type SwapResult uint8

// The results of a PlanSwap.
const (
	Swapped     SwapResult = iota + 1
	SwapLost               // the plan does not have the ID in Expected; nothing was changed
	SwapRefused            // MaxPending leaves no capacity for the plan and its entries; nothing was changed
)

var swapNames = [...]string{"", "swapped", "lost", "refused"}

func (r SwapResult) String() string { return nameOf("SwapResult", swapNames[:], uint8(r)) }

// Check refuses a swap that is out of bounds.
func (p PlanSwap) Check() error {
	if err := CheckKey(p.Key); err != nil {
		return err
	}
	switch {
	case strings.IndexByte(p.Key, 0) != len(p.Key)-1 || len(p.Key) == 1:
		return fmt.Errorf("durable: %s is not the key of a plan, which has one zero byte, at its end", quote(p.Key))
	case p.ID == p.Expected:
		return fmt.Errorf("durable: PlanSwap.ID of %s is %v, must differ from Expected", quote(p.Key), p.ID)
	case p.ID == ID{}:
		return nil
	case len(p.Body) > MaxBody:
		return fmt.Errorf("durable: the plan %s is %d bytes long, must be at most %d", quote(p.Key), len(p.Body), MaxBody)
	case p.Wake > WakeOnEnd:
		return fmt.Errorf("durable: PlanSwap.Wake of %s is %d, must be 0 to %d", quote(p.Key), p.Wake, WakeOnEnd)
	case len(p.Entries) > MaxPlanEntries:
		return fmt.Errorf("durable: PlanSwap of %s has %d entries, must have at most %d", quote(p.Key), len(p.Entries), MaxPlanEntries)
	}
	for _, e := range p.Entries {
		if PlanOf(e.Key) != p.Key {
			return fmt.Errorf("durable: %s is not the key of an occurrence of %s", quote(e.Key), quote(p.Key))
		}
		if err := e.Check(); err != nil {
			return err
		}
	}
	return checkAt("plan "+quote(p.Key), p.Due)
}

// Added returns how many timers a swap adds to the count that MaxPending bounds, where exists
// reports whether an entry exists. It is 0 for a swap that removes the plan.
func (p PlanSwap) Added(exists func(key string) bool) int {
	if p.ID == (ID{}) {
		return 0
	}
	n := 0
	if p.Expected == (ID{}) {
		n++
	}
	for _, e := range p.Entries {
		if !exists(e.Key) {
			n++
		}
	}
	return n
}
