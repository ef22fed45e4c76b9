package main

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/internal/openfiles"
)

var httpPollsWorkload = workload{
	name: "W15", title: "HTTP polls: parked over net/http, woken one at a time by an event", size: "parked",
	metrics: []string{"bytes_per_poll", "idle_cpu_pct", "wake_p50_us", "wake_p99_us"},
	full:    sizes("parked", 10_000),
	quick:   sizes("parked", 1_000),
}

// httpPollBytes is roughly the memory of a parked HTTP poll, at client and server together.
const httpPollBytes = 100 << 10

// pollsAllowed is how many polls can be parked with a connection each: fewer than requested if
// the limit of open files is low. pollsReason is the reason to report then.
var pollsAllowed, pollsReason = func() (int, string) {
	most := max(1, openfiles.Limit()-otherFiles)
	return most, fmt.Sprintf("%d files may be open, so %d polls are parked", openfiles.Limit(), most)
}()

// httpPolls parks polls at a server in a separate process, each for its own key: over HTTP/1.1
// with a connection each, over HTTP/2 as streams of a few connections.
//
// bytes_per_poll is the growth of the server's live heap and stacks when all are parked, per
// poll. It includes net/http's share, which the same server with another way to wait has too,
// but not the kernel's buffers. Then the server's CPU is measured while nothing happens. Then,
// repeatedly, an event is published for one key. The time is from when the server has the event,
// by its clock, until the client has read the response to the poll. The client polls again,
// followed by half a millisecond without activity, after which the poll is parked and the server
// as idle as before.
//
// Client and server share the machine's cores.
func httpPolls(j Job, holder string, protocol int) (Result, error) {
	arg := fmt.Sprintf("%s %d", holder, j.Params["parked"])
	return withOwnServer(j, "polls", arg, func(s *server) (Result, error) { return httpPollsAt(s, j, protocol) })
}

func httpPollsAt(s *server, j Job, protocol int) (Result, error) {
	n := j.Params["parked"]
	clients := newPollClients(s.addr, n, protocol)
	defer clients.close()
	before, err := clients.statistic("memory")
	if err != nil {
		return Result{}, err
	}
	if err := clients.park(n); err != nil {
		return Result{}, err
	}
	if err := s.waitIdle(); err != nil {
		return Result{}, err
	}
	after, err := clients.statistic("memory")
	if err != nil {
		return Result{}, err
	}
	res, err := measureParked(j, s, 5*time.Second, clients.wake)
	if err != nil {
		return Result{}, err
	}
	res.Metrics["bytes_per_poll"] = float64(after-before) / float64(n)
	return res, nil
}
