package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Gap is a measurement that was not made, and why.
type Gap struct {
	Workload, Impl string
	Params         Params // nil: all sizes
	Reason         string
}

func (g Gap) sizes() string {
	if g.Params == nil {
		return "all sizes"
	}
	return g.Params.String()
}

// runner runs each job in its own child process, so that the heap, the collector's state, timers
// and goroutines of one job never affect another. At each size the rivals take turns (A B C, A B
// C, ...), so that a drift of the machine affects all alike.
type runner struct {
	self      string
	workloads []workload
	rivals    []rival
	quick     bool
	reps      int
	progress  progress
	// done is called with the results of each size when that size is finished.
	done func(rows []Row)

	begun time.Time

	mu      sync.Mutex
	results []Result
	gaps    []Gap
}

// step is one job with its rival.
type step struct {
	rival rival
	job   Job
}

// plan returns the steps of each size, one repetition after the other.
func (r *runner) plan() [][]step {
	var groups [][]step
	for _, w := range r.workloads {
		params := w.full
		if r.quick {
			params = w.quick
		}
		planned := map[string]bool{} // a reduced size is measured once
		for _, p := range params {
			var steps []step
			for _, riv := range append(slices.Clone(r.rivals), controlRival) {
				reduced := riv.params(w, p)
				key := riv.name + " " + reduced.String()
				if planned[key] {
					continue
				}
				planned[key] = true
				if !riv.supports(w.name) && (!riv.timers() || !slices.Contains(timerWorkloads, w.name)) {
					continue // timers, purgatories and brokers do not compete with each other
				}
				if reason := r.gap(w, riv); reason != "" {
					r.addGap(Gap{w.name, riv.name, nil, reason})
					continue
				}
				if riv.maxReason != "" && reduced.String() != p.String() {
					r.addGap(Gap{w.name, riv.name, p, riv.maxReason})
				}
				steps = append(steps, step{riv, Job{Workload: w.name, Impl: riv.name, Params: reduced, Quick: r.quick, Slack: 1}})
			}
			var group []step
			for rep := range r.reps {
				for _, s := range steps {
					if rep > 0 && s.job.Params[w.size] >= hugeSize {
						continue
					}
					s.job.Rep = rep
					group = append(group, s)
				}
			}
			if len(group) > 0 {
				groups = append(groups, group)
			}
		}
	}
	return groups
}

func (r *runner) gap(w workload, riv rival) string {
	if !riv.supports(w.name) {
		return "not done with it"
	}
	if riv.unavailable != nil {
		if err := riv.unavailable(); err != nil {
			return err.Error()
		}
	}
	return ""
}

func (r *runner) addGap(g Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.gaps {
		if known.Workload == g.Workload && known.Impl == g.Impl && known.Params.String() == g.Params.String() {
			return
		}
	}
	r.gaps = append(r.gaps, g)
}

// run runs all jobs. A job that fails becomes a gap, and the others continue.
func (r *runner) run(ctx context.Context) error {
	r.begun = time.Now()
	groups := r.plan()
	total := 0
	for _, g := range groups {
		total += len(g)
	}
	r.progress.begin(total)
	defer r.progress.end()
	sleeps := func(group []step) bool { return r.quick && workloadNamed(group[0].job.Workload).sleeps }
	var concurrent sync.WaitGroup
	for _, group := range groups {
		if sleeps(group) {
			concurrent.Go(func() { r.finish(r.runConcurrently(ctx, group)) })
		}
	}
	for _, group := range groups {
		if sleeps(group) {
			continue
		}
		var results []Result
		for _, s := range group {
			results = append(results, r.step(ctx, s)...)
		}
		r.finish(results)
	}
	concurrent.Wait()
	return ctx.Err()
}

// runConcurrently runs all steps of a group at once.
func (r *runner) runConcurrently(ctx context.Context, group []step) []Result {
	all := make([][]Result, len(group))
	var wg sync.WaitGroup
	for i, s := range group {
		wg.Go(func() { all[i] = r.step(ctx, s) })
	}
	wg.Wait()
	return slices.Concat(all...)
}

// finish keeps the results of a size and calls done with them.
func (r *runner) finish(results []Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, results...)
	r.done(rowsOf(results))
}

// step runs one job and returns its result, or none.
func (r *runner) step(ctx context.Context, s step) []Result {
	if ctx.Err() != nil {
		return nil
	}
	r.progress.at(s.job)
	defer r.progress.add()
	gap := func(format string, args ...any) []Result {
		r.addGap(Gap{s.job.Workload, s.job.Impl, s.job.Params, fmt.Sprintf(format, args...)})
		return nil
	}
	if r.quick && time.Since(r.begun) > quickLimit {
		return gap("a quick run's time was over: the machine is busy")
	}
	// Do not start a job that does not fit into memory: the machine would swap, or the kernel
	// would kill another process.
	need := int64(s.job.size()) * int64(s.rival.bytes)
	if free := memInfo("MemAvailable"); free > 0 && need > free/10*9 {
		return gap("needs some %.1f GB, %.1f GB are available", float64(need)/1e9, float64(free)/1e9)
	}
	res, err := r.job(ctx, s)
	for err == nil && res.TooSlow {
		if s.job.Slack = max(s.job.Slack, 1) * 5; s.job.Slack > maxSlack {
			return gap("failed: timers were due before all were started")
		}
		res, err = r.job(ctx, s)
	}
	switch {
	case err == nil:
		return []Result{res}
	case ctx.Err() == nil:
		return gap("failed: %v", err)
	}
	return nil
}

// quickLimit is the time after which a quick run starts no further job. With the last job, the
// plots and a slow JVM the run then ends within 50 s, even on a busy machine. An idle machine
// does not reach the limit. Tests raise it, so that they pass on any machine.
var quickLimit = 42 * time.Second

const (
	// hugeSize is measured once in a run: it takes minutes, and its results follow from those of
	// smaller sizes.
	hugeSize = 100_000_000

	// jobLimit is the time after which a child is killed. Holding 100M timers takes minutes for
	// a rival that allocates each.
	jobLimit = 15 * time.Minute

	// maxSlack is the largest Job.Slack.
	maxSlack = 25
)

func (r *runner) job(ctx context.Context, s step) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	argv, err := s.rival.argv(r.self, s.job)
	if err != nil {
		return Result{}, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("not done within %v", jobLimit)
		}
		return Result{}, fmt.Errorf("%w: %s", err, firstLine(stderr.Bytes()))
	}
	var res Result
	if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
		return Result{}, fmt.Errorf("what the child printed: %w", err)
	}
	return res, nil
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return string(line)
}

// warn prints a message that is not a result.
func warn(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
