package console

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

const (
	confirmAbove  = 100 // timers
	maxJobs       = 20  // kept bulk actions; a running one is never dropped
	maxMissedKeys = 100 // of a bulk action
	minRetry      = time.Second
	maxRetry      = 30 * time.Second
)

// bulk holds the bulk actions.
type bulk struct {
	mu    sync.Mutex
	jobs  []*job // guarded by mu; in order of their start
	group sync.WaitGroup
}

// wait returns when no bulk action runs.
func (b *bulk) wait() {
	b.mu.Lock()   // waits for an addJob that saw the console open; a later one sees it closed
	b.mu.Unlock() //nolint:staticcheck // the section is empty on purpose
	b.group.Wait()
}

// job is a bulk action.
type job struct {
	stop     chan struct{} // closed when the user stops the action
	stopping sync.Once

	mu    sync.Mutex
	state jobState // guarded by mu
}

// jobState is a bulk action as the API shows it.
type jobState struct {
	ID      string `json:"id"`
	Process string `json:"process"` // that runs it
	Action  string `json:"action"`
	Filter  filter `json:"filter"`
	moveTo
	total         // the timers that matched at the start
	Status string `json:"status"` // running, retrying, stopping, stopped, failed or done

	Begun      time.Time `json:"begun"`
	Ended      time.Time `json:"ended,omitzero"`
	ShardsDone int       `json:"shards_done"`
	Shards     int       `json:"shards"`
	Changed    int       `json:"changed"`
	// Missed counts timers that changed before the action reached them. MissedKeys are the first of
	// them, as text. Lists and events leave the keys out, which would make them large.
	Missed     int      `json:"missed"`
	MissedKeys []string `json:"missed_keys,omitempty"`

	Error    string    `json:"error,omitempty"`    // of the engine, or why it failed
	Retrying time.Time `json:"retrying,omitzero"`  // when the current failures began
	Failures int       `json:"failures,omitempty"` // consecutive errors of the engine
}

func (j *job) snapshot() jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.state
	s.MissedKeys = slices.Clone(s.MissedKeys)
	if !s.over() && j.stopped() {
		s.Status = "stopping"
	}
	return s
}

func (j *job) stopped() bool {
	select {
	case <-j.stop:
		return true
	default:
		return false
	}
}

func (s *jobState) over() bool { return !s.Ended.IsZero() }

var bulkActions = map[string]durable.BulkAction{
	"cancel": durable.BulkCancel, "reset": durable.BulkReset, "requeue": durable.BulkRequeue, "purge": durable.BulkPurge,
}

// startBulk begins a bulk action if the user has confirmed how many timers it will change.
func (c *Console) startBulk(r *http.Request) (any, error) {
	var request struct {
		Action string `json:"action"`
		Filter filter `json:"filter"`
		moveTo
		// Confirm is the count that the page showed and the user typed. AtLeast reports whether the
		// page showed it as a lower bound.
		Confirm int  `json:"confirm"`
		AtLeast bool `json:"at_least"`
	}
	if err := readJSON(r, &request); err != nil {
		return nil, err
	}
	action, ok := bulkActions[request.Action]
	if !ok {
		return nil, badRequest("action is %.64q, must be cancel, reset, requeue or purge", request.Action)
	}
	if err := request.check(request.Action); err != nil {
		return nil, err
	}
	q, err := request.Filter.query()
	if err != nil {
		return nil, err
	}
	want := map[durable.BulkAction][]durable.State{
		durable.BulkCancel: {durable.Waiting, durable.Leased}, durable.BulkReset: {durable.Waiting},
		durable.BulkRequeue: {durable.Dead}, durable.BulkPurge: {durable.Dead},
	}[action]
	if !slices.Contains(want, q.State) {
		return nil, badRequest("filter.state is %s, must be %s for %s", request.Filter.State, stateName(want[0]), request.Action)
	}
	counted, err := c.count(r.Context(), q)
	if err != nil {
		return nil, err
	}
	if !confirmed(counted, total{Count: request.Confirm, AtLeast: request.AtLeast}) {
		return nil, &failure{
			Status:  http.StatusConflict,
			Message: fmt.Sprintf("%s match now: confirm that number", counted),
			Count:   &counted.Count, AtLeast: counted.AtLeast,
		}
	}
	j, err := c.addJob(jobState{
		Process: c.options.Process, Action: request.Action, Filter: request.Filter, moveTo: request.moveTo, total: counted,
		Status: "running", Begun: time.Now().UTC(),
	}, durable.Bulk{Action: action, State: q.State, Filter: q.Filter, At: request.At, After: request.after()}, r)
	if err != nil {
		return nil, err
	}
	return j.snapshot(), nil
}

func (t total) String() string {
	if t.AtLeast {
		return fmt.Sprintf("at least %d timers", t.Count)
	}
	return fmt.Sprintf("%d timers", t.Count)
}

// confirmed reports whether the user has confirmed the present count: to within 10 %, or any count
// while both are at most confirmAbove. A count that was cut short varies with the store's speed, so
// for such a count every lower bound above confirmAbove is a confirmation.
func confirmed(now, shown total) bool {
	if now.AtLeast {
		return shown.AtLeast && shown.Count > confirmAbove
	}
	if now.Count <= confirmAbove && shown.Count <= confirmAbove {
		return true
	}
	difference := now.Count - shown.Count
	return max(difference, -difference)*10 <= shown.Count
}

func (c *Console) addJob(s jobState, b durable.Bulk, r *http.Request) (*job, error) {
	c.bulk.mu.Lock()
	defer c.bulk.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, &failure{Status: http.StatusServiceUnavailable, Message: "the console is closed"}
	}
	run := 0
	for _, j := range c.bulk.jobs {
		if s := j.snapshot(); !s.over() {
			run++
		}
	}
	if run >= c.options.MaxBulk {
		return nil, &failure{
			Status: http.StatusTooManyRequests, RetryAfter: 5,
			Message: fmt.Sprintf("%d bulk actions run, must be at most %d at once: wait for one or stop it", run, c.options.MaxBulk),
		}
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	s.ID = hex.EncodeToString(id[:])
	j := &job{stop: make(chan struct{}), state: s}
	c.bulk.jobs = append(c.bulk.jobs, j)
	for i := 0; len(c.bulk.jobs) > maxJobs && i < len(c.bulk.jobs); {
		if s := c.bulk.jobs[i].snapshot(); s.over() {
			c.bulk.jobs = slices.Delete(c.bulk.jobs, i, i+1)
		} else {
			i++
		}
	}
	c.log(r, "bulk "+s.Action, "id", s.ID, "timers", s.Count, "at_least", s.AtLeast, "state", s.Filter.State,
		"prefix", b.Prefix, "topic", b.Topic, "error", b.Error)
	c.bulk.group.Go(func() {
		c.run(c.ctx, j, b)
		s := j.snapshot()
		c.options.Logger.Info("console: bulk action ended", "id", s.ID, "action", s.Action, "status", s.Status,
			"changed", s.Changed, "missed", s.Missed)
	})
	return j, nil
}

// run carries out a bulk action, and retries after errors of the engine until the user stops it. A
// stop takes effect between pages, so that the counts of changed timers are right; the end of ctx
// takes effect at once.
func (c *Console) run(ctx context.Context, j *job, b durable.Bulk) {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		failed := false
		for p, err := range c.timers.Bulk(ctx, b) {
			if p.Resume != "" {
				b = durable.Bulk{Resume: p.Resume}
			}
			if j.add(p, err, ctx.Err() != nil || j.stopped()) {
				return
			}
			if failed = err != nil; !failed {
				wait = minRetry / 2
			}
		}
		if !failed {
			j.end("done")
			return
		}
		select {
		case <-time.After(max(wait, minRetry)):
		case <-j.stop:
			j.end("stopped")
			return
		case <-ctx.Done():
			j.end("stopped")
			return
		}
	}
}

// add adds progress, and reports whether the action has ended.
func (j *job) add(p durable.BulkProgress, err error, stopped bool) (over bool) {
	j.mu.Lock()
	s := &j.state
	if p.Shards > 0 { // 0: the action was invalid, or the timers are closed
		s.ShardsDone, s.Shards, s.Changed, s.Missed = p.ShardsDone, p.Shards, p.Changed, p.Missed
	}
	for _, key := range p.MissedKeys[:min(len(p.MissedKeys), maxMissedKeys-len(s.MissedKeys))] {
		s.MissedKeys = append(s.MissedKeys, readable(durable.KeyText(key)))
	}
	status := ""
	switch {
	case stopped && (err != nil || p.Resume != ""):
		status = "stopped"
	case err == nil:
		s.Status, s.Error, s.Retrying, s.Failures = "running", "", time.Time{}, 0
	case p.Shards == 0 || errors.Is(err, durable.ErrClosed):
		s.Error, status = readable(err.Error()), "failed"
	default:
		if s.Retrying.IsZero() {
			s.Retrying = time.Now().UTC()
		}
		s.Failures++
		s.Status, s.Error = "retrying", readable(err.Error())
	}
	j.mu.Unlock()
	if status != "" {
		j.end(status)
	}
	return status != ""
}

func (j *job) end(status string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Status, j.state.Ended, j.state.Retrying = status, time.Now().UTC(), time.Time{}
}

// jobStates returns the bulk actions, the latest first, without their missed keys.
func (b *bulk) jobStates() []jobState {
	b.mu.Lock()
	jobs := slices.Clone(b.jobs)
	b.mu.Unlock()
	states := make([]jobState, len(jobs))
	for i, j := range jobs {
		s := j.snapshot()
		s.MissedKeys = nil
		states[len(jobs)-1-i] = s
	}
	return states
}

// jobList is the bulk actions of one process.
type jobList struct {
	Process string     `json:"process"`
	Bulk    []jobState `json:"bulk"`
}

func (c *Console) jobList() jobList { return jobList{c.options.Process, c.bulk.jobStates()} }

func (c *Console) listBulk(*http.Request) (any, error) { return c.jobList(), nil }

func (c *Console) job(r *http.Request) (*job, error) {
	c.bulk.mu.Lock()
	defer c.bulk.mu.Unlock()
	for _, j := range c.bulk.jobs {
		if j.snapshot().ID == r.PathValue("id") {
			return j, nil
		}
	}
	return nil, &failure{
		Status: http.StatusNotFound, Elsewhere: true,
		Message: fmt.Sprintf("no bulk action of the last %d of %s has the id %.64q", maxJobs, c.options.Process, r.PathValue("id")),
	}
}

func (c *Console) getBulk(r *http.Request) (any, error) {
	j, err := c.job(r)
	if err != nil {
		return nil, err
	}
	return j.snapshot(), nil
}

// stopBulk stops a bulk action after its current page.
func (c *Console) stopBulk(r *http.Request) (any, error) {
	j, err := c.job(r)
	if err != nil {
		return nil, err
	}
	j.stopping.Do(func() { close(j.stop) })
	s := j.snapshot()
	c.log(r, "stop bulk "+s.Action, "id", s.ID, "changed", s.Changed)
	return s, nil
}
