package keyed_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Leases is a small version of package keyed: resources are leased to a holder for a time, and
// the lease can be renewed. Like keyed, it uses only the wheel's exported methods.
type Leases struct {
	wheel *timingwheel.Wheel[lease]
	ended func(resource, holder string)

	mu     sync.Mutex
	timers map[string]timingwheel.Timer
}

type lease struct{ resource, holder string }

func NewLeases(ended func(resource, holder string)) (*Leases, error) {
	l := &Leases{ended: ended, timers: map[string]timingwheel.Timer{}}
	wheel, err := timingwheel.New(l.expired, timingwheel.Options{})
	l.wheel = wheel
	return l, err
}

// Acquire leases a resource that is free, and returns its holder.
func (l *Leases) Acquire(resource, holder string, ttl time.Duration) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.wheel.Value(l.timers[resource]); ok { // the zero Timer is no timer
		return held.holder, nil
	}
	timer, err := l.wheel.Schedule(lease{resource, holder}, ttl)
	if err != nil {
		return "", err
	}
	l.timers[resource] = timer
	return holder, nil
}

// Renew renews the lease if holder still has it, and reports whether it does.
func (l *Leases) Renew(resource, holder string, ttl time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	timer := l.timers[resource]
	held, ok := l.wheel.Value(timer)
	return ok && held.holder == holder && l.wheel.Touch(timer, ttl)
}

// Transfer gives a lease to someone else, with a new time to live.
func (l *Leases) Transfer(resource, from, to string, ttl time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	timer := l.timers[resource]
	held, ok := l.wheel.Value(timer)
	return ok && held.holder == from && l.wheel.Replace(timer, lease{resource, to}, ttl)
}

// Release ends a lease early, and reports whether holder had it.
func (l *Leases) Release(resource, holder string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	timer := l.timers[resource]
	if held, ok := l.wheel.Value(timer); !ok || held.holder != holder || !l.wheel.Stop(timer) {
		return false
	}
	delete(l.timers, resource)
	return true
}

// expired runs after the lease has left the wheel. By now the resource may be leased again,
// with a pending timer, which must stay.
func (l *Leases) expired(e lease) {
	l.mu.Lock()
	if _, pending := l.wheel.Value(l.timers[e.resource]); !pending {
		delete(l.timers, e.resource)
	}
	l.mu.Unlock()
	l.ended(e.resource, e.holder)
}

// A custom front end.
func Example_frontEnd() {
	ended := make(chan string)
	leases, err := NewLeases(func(resource, holder string) { ended <- resource + " of " + holder })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(leases.Acquire("printer", "ada", time.Hour))
	fmt.Println(leases.Acquire("printer", "bob", time.Hour))
	fmt.Println(leases.Renew("printer", "ada", 2*time.Hour), leases.Renew("printer", "bob", time.Hour))
	fmt.Println(leases.Transfer("printer", "ada", "bob", time.Millisecond))
	fmt.Println("ended:", <-ended)
	fmt.Println(leases.Acquire("printer", "cyd", time.Hour))
	fmt.Println(leases.Release("printer", "cyd"))
	fmt.Println(leases.Acquire("printer", "dan", time.Hour))

	left, err := leases.wheel.Shutdown(context.Background(), timingwheel.Return)
	for _, d := range left {
		fmt.Println("left:", d.Value.resource, d.Value.holder)
	}
	fmt.Println(err)
	_, err = leases.Acquire("scanner", "ada", time.Hour)
	fmt.Println(err)
	// Output:
	// ada <nil>
	// ada <nil>
	// true false
	// true
	// ended: printer of bob
	// cyd <nil>
	// true
	// dan <nil>
	// left: printer dan
	// <nil>
	// timingwheel: closed
}
