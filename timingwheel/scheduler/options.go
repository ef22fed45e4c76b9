package scheduler

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/seed-782fa212/limbo/internal/sentinel"
	"github.com/seed-782fa212/limbo/timingwheel"
)

var (
	// ErrClosed is returned for a call or a job after a shutdown has begun, and is the
	// [Job.Err] of a job that the shutdown ended.
	ErrClosed = sentinel.Closed("scheduler: closed")
	// ErrFull is returned for a call or a job beyond [Options.MaxPending].
	ErrFull = sentinel.Full("scheduler: full")
	// ErrGaveUp is in the [Job.Err] of a Retry that has used up [RetryOptions.MaxAttempts],
	// together with the error of the last attempt.
	ErrGaveUp = errors.New("scheduler: gave up")
	// ErrPanicked is in the [Job.Err] of a job whose schedule panicked or ended its goroutine;
	// for an attempt of a Retry that did so, it replaces the error.
	ErrPanicked = errors.New("scheduler: the function panicked or ended its goroutine")

	errNilFunc = errors.New("scheduler: the function is nil")
)

// Options configures a Scheduler. The zero value is a good default.
type Options struct {
	// MaxPending bounds the calls and jobs held at once; further ones are refused with
	// [ErrFull]. A call holds its slot until its function is called, or it is stopped; a job
	// from its start to its end, including its runs. Default 0: bounded only by memory; at
	// least 0.
	MaxPending int

	// Tick is the resolution: a function is called at the first tick at or after its time, so
	// up to one Tick late and never early. Default 500 µs; at least 1 ns. A smaller tick costs
	// wake-ups only while functions are due.
	Tick time.Duration

	// Workers bounds the goroutines that call the functions of AfterFunc and, separately, the
	// goroutines that run jobs, so that neither waits for the other. They start when first
	// needed. Default: GOMAXPROCS, at least 4; 1 to 65,536. Raise it when functions block.
	Workers int

	// WheelSize is that of [timingwheel.Options]. Default 2,048; 2 to 65,536.
	WheelSize int

	// Shards is that of [timingwheel.Options]. Default: 2 for each of GOMAXPROCS,
	// at most 256; 1 to 256.
	Shards int

	// OnPanic is called with each panic of a function, a schedule or an OnEnd hook, on the
	// goroutine that recovered it. Default: log an error on slog's default logger. A panic in
	// OnPanic is logged there too, and a panic of that logger is dropped.
	OnPanic func(timingwheel.Panic)
}

// withDefaults replaces zero values by defaults and refuses values out of range. The wheel does
// so for its own fields.
func (o Options) withDefaults() (Options, error) {
	if o.MaxPending < 0 {
		return o, fmt.Errorf("scheduler: Options.MaxPending is %d, must be 0 (no bound) or more", o.MaxPending)
	}
	if o.OnPanic == nil {
		o.OnPanic = logPanic
	}
	return o, nil
}

// wheel returns the options of an underlying wheel.
func (o Options) wheel(maxPending int) timingwheel.Options {
	return timingwheel.Options{
		Tick:       o.Tick,
		WheelSize:  o.WheelSize,
		Shards:     o.Shards,
		Workers:    o.Workers,
		MaxPending: maxPending,
		OnPanic:    o.OnPanic,
	}
}

func logPanic(p timingwheel.Panic) {
	slog.Error("scheduler: function panicked", "panic", p.Value, "stack", string(p.Stack))
}

// Missed is the treatment of a job's runs whose time passes before they can begin: because the
// previous run is still in progress, the workers are busy, the process was stopped, or the wall
// clock was set ahead. The run in progress, or one that is merely late, is not missed.
type Missed uint8

const (
	// Skip omits the runs whose time has passed when the previous run ends, or when the wall
	// clock is found to have been set past them by a second or more. The next run is the
	// schedule's first from then on.
	Skip Missed = iota
	// Coalesce makes them up by one run, at once: a run that begins late stands for all runs
	// whose time has come by then.
	Coalesce
	// RunAll makes each of them up, at once, one after the other.
	RunAll
)

// String returns the name of m.
func (m Missed) String() string {
	switch m {
	case Skip:
		return "Skip"
	case Coalesce:
		return "Coalesce"
	case RunAll:
		return "RunAll"
	}
	return fmt.Sprintf("Missed(%d)", uint8(m))
}

// JobOptions configures a job. The zero value skips missed runs, and has no
// jitter and no hook.
type JobOptions struct {
	// Missed is the treatment of missed runs. Default Skip. It has no effect on At and
	// EveryDelay, which cannot miss a run.
	Missed Missed

	// Jitter delays each run by a random time from zero up to this, so that jobs with the same
	// schedule do not all run at once. The delay is added to the time that the schedule gave
	// for the run, and the schedule continues from that time: it does not shift, however long
	// the Jitter. Default 0; at least 0.
	//
	// With a Jitter of a period or more, the times of successive runs can be out of order. Runs
	// are still made one after the other, each at its time or, if that passed while it waited
	// for the previous run, as Missed determines; Jitter makes none later than its planned time
	// plus Jitter.
	Jitter time.Duration

	// OnEnd, if not nil, is called once when the job has ended, unless Stop ended it. err is
	// the [Job.Err]: nil when the schedule has no further run, or At's has been made;
	// [ErrClosed] when a shutdown ended the job; otherwise why it could not continue. No lock
	// is held. OnEnd is called on the goroutine that ended the job: a worker, the caller of
	// Close or Shutdown, a goroutine of the scheduler after the wall clock was set, or, for a
	// schedule without any run, the caller of OnSchedule, before that returns. A panic in it
	// goes to [Options.OnPanic].
	OnEnd func(j *Job, err error)
}

func (o JobOptions) validate() error {
	switch {
	case o.Missed > RunAll:
		return fmt.Errorf("scheduler: JobOptions.Missed is %v, must be Skip, Coalesce or RunAll", o.Missed)
	case o.Jitter < 0:
		return fmt.Errorf("scheduler: JobOptions.Jitter is %v, must be at least 0", o.Jitter)
	}
	return nil
}

// RetryOptions configures the backoff of a Retry. The zero value retries without end, and waits
// up to 100 ms after the first failure, 200 ms after the second, and so on, up to a minute.
type RetryOptions struct {
	// Base is the backoff after the first failed attempt. Default 100 ms; at least 1 ns.
	Base time.Duration

	// Factor multiplies the backoff after each further failure; the result is rounded up to the
	// nanosecond. Default 2; at least 1, and finite.
	Factor float64

	// Max bounds the backoff. Default one minute, or Base if that is longer; at least Base.
	Max time.Duration

	// MaxAttempts bounds the calls of the function, including the first. Default 0: no bound;
	// at least 0.
	MaxAttempts int

	// FixedBackoff makes each wait take the whole backoff. The default draws it each time,
	// evenly from zero to the backoff (full jitter), so that many jobs that failed together do
	// not retry together.
	FixedBackoff bool

	// OnEnd, if not nil, is called once when the Retry has ended, unless Stop ended it. err is
	// the [Job.Err]: nil after an attempt that succeeded, otherwise [ErrGaveUp] or [ErrClosed],
	// with the error of the last attempt. No lock is held. See [JobOptions] for the goroutine
	// and for panics.
	OnEnd func(j *Job, err error)
}

const (
	defaultBase   = 100 * time.Millisecond
	defaultFactor = 2
	defaultMax    = time.Minute
)

func (o RetryOptions) withDefaults() (RetryOptions, error) {
	if o.Base == 0 {
		o.Base = defaultBase
	}
	if o.Factor == 0 {
		o.Factor = defaultFactor
	}
	if o.Max == 0 {
		o.Max = max(defaultMax, o.Base)
	}
	switch {
	case o.Base < 0:
		return o, fmt.Errorf("scheduler: RetryOptions.Base is %v, must be at least 1ns", o.Base)
	case !(o.Factor >= 1) || math.IsInf(o.Factor, 1): // or NaN
		return o, fmt.Errorf("scheduler: RetryOptions.Factor is %v, must be at least 1, and finite", o.Factor)
	case o.Max < o.Base:
		return o, fmt.Errorf("scheduler: RetryOptions.Max is %v, must be at least Base, %v", o.Max, o.Base)
	case o.MaxAttempts < 0:
		return o, fmt.Errorf("scheduler: RetryOptions.MaxAttempts is %d, must be 0 (no bound) or more", o.MaxAttempts)
	}
	return o, nil
}
