package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/durable/store"
)

// request is one script with its arguments. It can be sent again: the scripts give the second
// request the first one's answer.
type request struct {
	script *script
	keys   []string
	args   []any
	clock  *serverClock // of the server; nil if the request changes nothing
	order  order
	wait   bool // replicas confirm it, if Options.WaitReplicas is set
}

// orderAt is the index, among the arguments of a request that changes something, of its order and
// deadline. Each attempt fills it in.
const orderAt = 3

func (r *request) reads() bool { return r.clock == nil }

// command returns the words of EVALSHA, or of EVAL if the server does not know the script.
func (r *request) command(whole bool) []any {
	words := make([]any, 0, 3+len(r.keys)+len(r.args))
	if whole {
		words = append(words, "eval", r.script.src)
	} else {
		words = append(words, "evalsha", r.script.sha)
	}
	words = append(words, len(r.keys))
	for _, k := range r.keys {
		words = append(words, k)
	}
	return append(words, r.args...)
}

// flight is a call in progress.
type flight struct {
	// unsure reports whether the server may have received a request that it has not answered. The
	// attempts write it; a caller that stops waiting for them reads it.
	unsure atomic.Bool
}

// limit returns a context with a deadline: it ends with ctx, with the store, or when the call's
// time is up.
func (s *Store) limit(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if s.ctx.Err() != nil {
		return nil, nil, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	longest := maxCall
	if _, ok := ctx.Deadline(); !ok {
		longest = s.o.CallTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// within calls f in its own goroutine, and waits for it until ctx, which limit returned, ends: the
// end of a context does not interrupt a read from a connection.
func (s *Store) within(ctx context.Context, f func(*flight) (any, error)) (any, error) {
	type outcome struct {
		value any
		err   error
	}
	fl := &flight{}
	done := make(chan outcome, 1)
	go func() {
		v, err := f(fl)
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	// The attempt has the same deadline, and may just have been answered.
	select {
	case o := <-done:
		return o.value, o.err
	case <-time.After(10 * time.Millisecond):
	}
	return nil, s.noAnswerError(ctx, fl, nil)
}

// noAnswerError returns the error of a call that was not answered in time.
func (s *Store) noAnswerError(ctx context.Context, fl *flight, last error) error {
	err := ctx.Err()
	if s.ctx.Err() != nil {
		err = store.ErrClosed
	}
	if last != nil && !errors.Is(last, err) {
		err = fmt.Errorf("%w, after: %w", err, last)
	}
	if fl.unsure.Load() {
		return fmt.Errorf("%w: %w", store.ErrUnsure, err)
	}
	return fmt.Errorf("redisstore: no answer: %w", err)
}

// call sends a request until it is answered, and returns the reply.
func (s *Store) call(ctx context.Context, r *request) (any, error) {
	ctx, cancel, err := s.limit(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.within(ctx, func(fl *flight) (any, error) { return s.attempts(ctx, r, fl) })
}

func (s *Store) attempts(ctx context.Context, r *request, fl *flight) (any, error) {
	var to target
	for n := 0; ; n++ {
		before := fl.unsure.Load()
		fl.unsure.Store(before || !r.reads())
		if !r.reads() {
			deadline, _ := ctx.Deadline()
			r.args[orderAt] = r.order.text(r.clock.at(deadline))
		}
		reply, err := s.attempt(ctx, r, to)
		if err == nil || errors.Is(err, store.ErrUnconfirmed) {
			return reply, err
		}
		class := classify(err)
		unsure := before || class.received && !r.reads()
		fl.unsure.Store(unsure)
		if !class.retriable {
			if unsure {
				return nil, fmt.Errorf("%w: %w", store.ErrUnsure, err)
			}
			return nil, err
		}
		if class.present != 0 && !r.reads() {
			r.clock.observe(class.present)
		}
		to = class.to
		if s.cluster != nil && class.reload {
			s.cluster.ReloadState(ctx)
		}
		pause := time.Duration(0)
		if to.addr == "" && class.present == 0 || n > 3 {
			pause = min(time.Millisecond<<min(n, 10), 50*time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil, s.noAnswerError(ctx, fl, err)
		case <-time.After(pause):
		}
	}
}

// attempt sends a request once. A server that hangs must not use up the whole time of the call:
// another server may replace it.
func (s *Store) attempt(ctx context.Context, r *request, to target) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.attemptTimeout)
	defer cancel()
	node, err := s.node(ctx, r.keys[0], to)
	if err != nil {
		return nil, &unsent{err}
	}
	reply, err := s.send(ctx, node, r, to.asking, false)
	if code(err) == "NOSCRIPT" {
		reply, err = s.send(ctx, node, r, to.asking, true)
	}
	return reply, err
}

// send sends a request over one connection of a node, with ASKING before it and WAIT after it where
// needed.
func (s *Store) send(ctx context.Context, node *redis.Client, r *request, asking, whole bool) (any, error) {
	cmd := redis.NewCmd(ctx, r.command(whole)...)
	wait := r.wait && s.o.WaitReplicas > 0
	if !asking && !wait {
		_ = node.Process(ctx, cmd)
		return result(cmd)
	}
	pipe := node.Pipeline()
	if asking {
		_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
	_ = pipe.Process(ctx, cmd)
	var confirmed *redis.Cmd
	if wait {
		confirmed = redis.NewCmd(ctx, "wait", s.o.WaitReplicas, s.o.WaitTimeout.Milliseconds())
		_ = pipe.Process(ctx, confirmed)
	}
	_, err := pipe.Exec(ctx)
	reply, cmdErr := result(cmd)
	switch {
	case cmdErr != nil:
		return nil, cmdErr
	case reply == nil && err != nil:
		return nil, err // the connection failed before the reply
	case wait:
		n, err := confirmed.Int()
		if err != nil {
			return reply, fmt.Errorf("%w: %w", store.ErrUnconfirmed, err)
		}
		if n < s.o.WaitReplicas {
			return reply, fmt.Errorf("%w: %d of %d", store.ErrUnconfirmed, n, s.o.WaitReplicas)
		}
	}
	return reply, nil
}

func result(cmd *redis.Cmd) (any, error) {
	v, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return v, err
}

// retriesAtOnce bounds how many requests to one node callAll sends again concurrently.
const retriesAtOnce = 16

// numbered is the reply to one of many requests.
type numbered struct {
	i     int
	value any
	err   error
}

// callAll sends requests that only read. It sends those to one node in a single pipeline, to all
// nodes concurrently, and sends each failed request again until it is answered. No reply to any of
// them is empty.
//
// With a patience of 0 it returns all replies, or the first error. Otherwise, once one request has
// been answered, it waits that long for the rest: missing replies are then nil, and the error says
// why. If no request was answered it returns no replies.
func (s *Store) callAll(ctx context.Context, requests []*request, patience time.Duration) ([]any, error) {
	ctx, cancel, err := s.limit(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	answers := make(chan numbered, len(requests))
	go s.pipelines(ctx, requests, answers)

	replies := make([]any, len(requests))
	var failed error
	var enough <-chan time.Time // when waiting ends
	ended := ctx.Done()
	answered := 0
	for n := 0; n < len(requests); {
		select {
		case a := <-answers:
			n++
			switch {
			case a.err == nil:
				replies[a.i] = a.value
				answered++
				if patience > 0 && enough == nil {
					enough = time.After(patience)
				}
			case patience == 0:
				return nil, a.err
			default:
				failed = a.err
			}
			continue
		case <-ended:
			// The attempts have the same deadline, and may just have been answered.
			enough, ended = time.After(10*time.Millisecond), nil
			continue
		case <-enough:
		}
		if ctx.Err() != nil {
			failed = s.noAnswerError(ctx, &flight{}, failed)
		} else if failed == nil {
			failed = fmt.Errorf("redisstore: no answer within %v of that of another server", patience)
		}
		break
	}
	if failed != nil && (answered == 0 || patience == 0) {
		return nil, failed
	}
	return replies, failed
}

// pipelines sends requests, and sends those that fail again. Each gets one answer.
func (s *Store) pipelines(ctx context.Context, requests []*request, answers chan<- numbered) {
	groups := make(map[*redis.Client][]int)
	for i, r := range requests {
		node, err := s.node(ctx, r.keys[0], target{})
		if err != nil {
			node = nil
		}
		groups[node] = append(groups[node], i)
	}
	for node, group := range groups {
		go func() {
			again := group
			if node != nil {
				again = s.pipeline(ctx, node, requests, group, answers)
			}
			queue := make(chan int, len(again))
			for _, i := range again {
				queue <- i
			}
			close(queue)
			for range min(len(again), retriesAtOnce) {
				go func() {
					for i := range queue {
						v, err := s.attempts(ctx, requests[i], &flight{})
						answers <- numbered{i, v, err}
					}
				}()
			}
		}()
	}
}

// pipeline sends the requests of a group to a node at once, and returns those that were not
// answered.
func (s *Store) pipeline(ctx context.Context, node *redis.Client, requests []*request, group []int, answers chan<- numbered) (again []int) {
	ctx, cancel := context.WithTimeout(ctx, s.attemptTimeout)
	defer cancel()
	pipe := node.Pipeline()
	cmds := make([]*redis.Cmd, len(group))
	for at, i := range group {
		cmds[at] = redis.NewCmd(ctx, requests[i].command(false)...)
		_ = pipe.Process(ctx, cmds[at])
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for at, i := range group {
		if v, err := result(cmds[at]); err == nil && v != nil {
			answers <- numbered{i, v, nil}
		} else {
			again = append(again, i)
		}
	}
	return again
}
