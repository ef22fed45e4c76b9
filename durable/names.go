package durable

import (
	"errors"

	"github.com/seed-782fa212/limbo/durable/store"
)

// A program imports this package, not package store, which is for engines. These types of package
// store pass between the two.
type (
	// Store is the interface of an engine.
	Store = store.Store
	// Limits are the bounds of each shard.
	Limits = store.Limits
	// Millis is a time by the engine's clock.
	Millis = store.Millis
	// ID names one timer, and is the same in all its attempts.
	ID = store.ID
	// Cursor is a position in the order of a List: after the timer with this key whose due time,
	// lease end or time of death, by its state, is At.
	Cursor = store.Cursor
	// Filter selects timers.
	Filter = store.Filter
	// State is one of Waiting, Leased or Dead.
	State = store.State
	// Receipt is the result of a Schedule.
	Receipt = store.Receipt
	// ReceiptKind is one of Created, Replaced, ReplacedDead, Succeeds, Exists, Refused.
	ReceiptKind = store.ReceiptKind
	// CancelResult is one of Cancelled, Running, NotFound.
	CancelResult = store.CancelResult
	// MoveResult is one of Moved, MoveRunning, MoveAbsent.
	MoveResult = store.MoveResult
	// RequeueResult is one of Requeued, RequeueExists, RequeueAbsent.
	RequeueResult = store.RequeueResult
)

// The bounds of a timer.
const (
	MaxKey   = store.MaxKey   // bytes of a key, at least 1
	MaxTopic = store.MaxTopic // bytes of a topic
	MaxBody  = store.MaxBody  // bytes of a body
	MaxError = store.MaxError // bytes kept of a last error
	// MaxMillis is the latest due time, in the year 2262.
	MaxMillis = store.MaxMillis
)

// The states of a timer; see [State].
const (
	Waiting = store.Waiting
	Leased  = store.Leased
	Dead    = store.Dead
)

// The results of a Schedule; see [ReceiptKind].
const (
	Created      = store.Created
	Replaced     = store.Replaced
	ReplacedDead = store.ReplacedDead
	Succeeds     = store.Succeeds
	Exists       = store.Exists
	Refused      = store.Refused
)

// The results of a Cancel; see [CancelResult].
const (
	Cancelled = store.Cancelled
	Running   = store.Running
	NotFound  = store.NotFound
)

// The results of a Reset; see [MoveResult].
const (
	Moved       = store.Moved
	MoveRunning = store.MoveRunning
	MoveAbsent  = store.MoveAbsent
)

// The results of a Requeue; see [RequeueResult].
const (
	Requeued      = store.Requeued
	RequeueExists = store.RequeueExists
	RequeueAbsent = store.RequeueAbsent
)

// The errors of the engines. They may be wrapped: test with [errors.Is].
var (
	ErrClosed      = store.ErrClosed
	ErrNotFound    = store.ErrNotFound
	ErrFull        = store.ErrFull
	ErrUnsure      = store.ErrUnsure
	ErrUnconfirmed = store.ErrUnconfirmed
	ErrShards      = store.ErrShards
)

// The causes with which a handler's ctx ends: [context.Cause] returns one of these.
var (
	// ErrLeaseLost: another worker may run the timer. Its lease was given to another worker, or
	// could not be extended before it expired.
	ErrLeaseLost = errors.New("durable: the lease on the timer was lost")
	// ErrCancelled: the timer was cancelled while it ran. It will not run again.
	ErrCancelled = errors.New("durable: the timer was cancelled")
	// ErrStopped: the worker stops, and WorkerOptions.Grace has passed.
	ErrStopped = errors.New("durable: the worker has stopped")
)
