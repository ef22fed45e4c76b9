package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// rival is a measured implementation.
type rival struct {
	name      string
	setup     string   // its configuration, for the report
	workloads []string // workloads
	// maxSize is the largest number of timers that the rival is asked to hold, or 0 for no limit.
	// Larger sizes are measured once, with this number, which their params show.
	maxSize int
	// maxReason is the reason for maxSize if the machine sets it. Larger sizes are gaps then.
	maxReason string
	// bytes is roughly the memory of a timer, including working space. The runner uses it to
	// skip sizes that do not fit into memory.
	bytes int
	// unavailable returns why the rival cannot run here, as a *notInstalled or another error. It is
	// nil for a rival that always can.
	unavailable func() error
	// variant is set if another rival reports the gaps of both.
	variant bool
	// run does a job in this process, a child that was started for it.
	run func(Job) (Result, error)
	// command is the command line that does a job, for a rival that is not in Go.
	command func(Job) []string
}

// rivals in the order of tables and legends.
var rivals = []rival{
	timingwheelRival,
	observedRivals[0],
	schedulerRival,
	keyedRival,
	stdlibRival,
	hashedwheelRival,
	heapRival,
	gozeroRival,
	nettyRival,
	purgatoryRival,
	observedRivals[1],
	thresholdRival,
	limboBrokerRival,
	kfakeRival,
	durableRedisRival,
	durablePebbleRival,
	asynqRival,
	natsRival,
	callsRival,
	callsGroupRival,
	mapRival,
	longpollRival,
	longpollHTTP2Rival,
	nodesRival,
	netHTTPRival,
	netHTTP2Rival,
}

var timerWorkloads = []string{"W1", "W2", "W3", "W4", "W5", "W6", "W7"}

// inProcess makes a rival's run from its opener.
func inProcess[H any](open opener[H]) func(Job) (Result, error) {
	return func(j Job) (Result, error) { return work(j, open) }
}

func (r rival) supports(workload string) bool { return slices.Contains(r.workloads, workload) }

// timers reports whether the rival has timers.
func (r rival) timers() bool { return !r.variant && slices.ContainsFunc(timerWorkloads, r.supports) }

// params reduces a workload's size to the rival's maximum.
func (r rival) params(w workload, p Params) Params {
	if r.maxSize == 0 || p[w.size] <= r.maxSize {
		return p
	}
	reduced := maps.Clone(p)
	reduced[w.size] = r.maxSize
	return reduced
}

func rivalNamed(name string) (rival, bool) {
	for _, r := range append(slices.Clone(rivals), controlRival) {
		if r.name == name {
			return r, true
		}
	}
	return rival{}, false
}

// argv returns the command line of the child that does j.
func (r rival) argv(self string, j Job) ([]string, error) {
	if r.command != nil {
		return r.command(j), nil
	}
	b, err := json.Marshal(j)
	return []string{self, childFlag, string(b)}, err
}

// childFlag makes this binary do one job and print its result.
const childFlag = "-child"

func child(arg string) error {
	var j Job
	if err := json.Unmarshal([]byte(arg), &j); err != nil {
		return fmt.Errorf("%s: %w", childFlag, err)
	}
	r, ok := rivalNamed(j.Impl)
	if !ok || r.run == nil {
		return fmt.Errorf("%s: no impl %q in this process", childFlag, j.Impl)
	}
	res, err := r.run(j)
	if err != nil {
		return err
	}
	res.Workload, res.Impl, res.Params = j.Workload, j.Impl, j.Params
	return json.NewEncoder(os.Stdout).Encode(res)
}
