package durable

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// WorkerOptions configure a worker. The zero value is a good default.
type WorkerOptions struct {
	// Name is the prefix of the worker's name in logs and for other workers; a random suffix makes
	// the name unique. Default: the host's name and the process ID. At most 100 bytes.
	Name string

	// Concurrency is how many handlers run at once. It also bounds the timers that the worker holds,
	// and so its memory: up to Concurrency running ones, with bodies of up to 64 KiB each, and as
	// many whose outcomes are being written. Default 64; 1 to 100,000. Raise it when handlers wait
	// for other systems, as for HTTP, and when thousands of timers are due each second: no more
	// than Concurrency run in the time that the engine takes for a claim.
	Concurrency int

	// Lease is how long a claimed timer belongs to this worker without an extension: if the worker
	// dies, another runs the timer after that. The lease of a running handler is extended when
	// half of it has passed. Default 30 s; 100 ms to 24 h. A short lease costs a call every half
	// lease, and runs a timer twice when its worker was only slow, as on a machine that was paused.
	Lease time.Duration

	// MaxAttempts is how often a timer is tried before it becomes a dead letter. A call of the
	// handler is an attempt, and so is a lease that was lost with its worker. Default 20; 1 or
	// more.
	MaxAttempts int

	// Backoff is the longest wait after a first failed attempt. It doubles with each further
	// failure, up to MaxBackoff. The actual wait is random, from 0 to that, so that timers that
	// failed together are not retried together. Defaults 1 s and 1 h; 1 ms to 720 h each.
	Backoff    time.Duration
	MaxBackoff time.Duration

	// Grace is how long handlers may go on after Run's ctx has ended, before their own ctx ends.
	// Default 10 s; up to 24 h. Negative: not at all.
	Grace time.Duration

	// OnDead is called with each timer that this worker has dead-lettered and the error of its
	// last attempt, after the dead letter is written. Each call runs on its own goroutine, up to
	// Concurrency at once. Dead letters that wait for OnDead count as timers whose outcomes are
	// being written, so the worker stops claiming if OnDead does not return. OnDead is not called
	// for timers whose workers died in their last attempt: WorkerStats.DeadLetteredLost counts those.
	// Nor is it called if the engine's reply to the write was lost, and the dead letter was
	// requeued, purged, replaced or removed by MaxDead or MaxDeadAge before the worker wrote it
	// again.
	OnDead func(Fired, error)
}

const (
	defaultConcurrency = 64
	maxConcurrency     = 100_000
	defaultLease       = 30 * time.Second
	defaultMaxAttempts = 20
	defaultBackoff     = time.Second
	defaultMaxBackoff  = time.Hour
	minBackoff         = time.Millisecond
	maxBackoff         = 720 * time.Hour
	defaultGrace       = 10 * time.Second
	maxGrace           = 24 * time.Hour
	maxName            = 100
)

func (o WorkerOptions) withDefaults() (WorkerOptions, error) {
	if o.Name == "" {
		host, _ := os.Hostname() // on error the process ID alone identifies the worker
		o.Name = fmt.Sprintf("%.64s-%d", host, os.Getpid())
	}
	o.Concurrency = cmp.Or(o.Concurrency, defaultConcurrency)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, defaultMaxAttempts)
	if o.Backoff == 0 {
		o.Backoff = defaultBackoff
		if o.MaxBackoff > 0 {
			o.Backoff = min(o.Backoff, o.MaxBackoff)
		}
	}
	o.MaxBackoff = cmp.Or(o.MaxBackoff, max(defaultMaxBackoff, o.Backoff))
	o.Grace = max(cmp.Or(o.Grace, defaultGrace), 0)
	switch {
	case len(o.Name) > maxName:
		return o, fmt.Errorf("durable: WorkerOptions.Name is %d bytes long, must be at most %d", len(o.Name), maxName)
	case o.Concurrency < 1 || o.Concurrency > maxConcurrency:
		return o, fmt.Errorf("durable: WorkerOptions.Concurrency is %d, must be 1 to %d", o.Concurrency, maxConcurrency)
	case o.Lease < store.MinLease || o.Lease > store.MaxLease:
		return o, fmt.Errorf("durable: WorkerOptions.Lease is %v, must be %v to %v", o.Lease, store.MinLease, store.MaxLease)
	case o.MaxAttempts < 1:
		return o, fmt.Errorf("durable: WorkerOptions.MaxAttempts is %d, must be 1 or more", o.MaxAttempts)
	case o.Backoff < minBackoff || o.Backoff > maxBackoff:
		return o, fmt.Errorf("durable: WorkerOptions.Backoff is %v, must be %v to %v", o.Backoff, minBackoff, maxBackoff)
	case o.MaxBackoff < o.Backoff || o.MaxBackoff > maxBackoff:
		return o, fmt.Errorf("durable: WorkerOptions.MaxBackoff is %v, must be Backoff, %v, to %v", o.MaxBackoff, o.Backoff, maxBackoff)
	case o.Grace > maxGrace:
		return o, fmt.Errorf("durable: WorkerOptions.Grace is %v, must be at most %v", o.Grace, maxGrace)
	}
	return o, nil
}
