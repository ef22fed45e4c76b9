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

// request is one script with its arguments. It can be sent again: the scripts see to
// it that the second answer is the first.
type request struct {
	script *script
	keys   []string
	args   []any
	reads  bool // changes nothing
	wait   bool // replicas confirm it, if Options.WaitReplicas is set
}

// command returns the words of EVALSHA, or of EVAL where the script is not known.
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

// flight is a call under way.
type flight struct {
	// unsure reports whether a request may have been received that was not answered.
	// The attempts write it, and whoever gives up waiting for them reads it.
	unsure atomic.Bool
}

// within calls f in a goroutine of its own, and waits for it until the deadline, which
// is that of ctx or the default: a read from a connection does not end with a context.
func within[T any](ctx context.Context, s *Store, f func(context.Context, *flight) (T, error)) (T, error) {
	var zero T
	if s.ctx.Err() != nil {
		return zero, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	longest := maxCall
	if _, ok := ctx.Deadline(); !ok {
		longest = s.o.CallTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	type outcome struct {
		value T
		err   error
	}
	fl := &flight{}
	done := make(chan outcome, 1)
	go func() {
		v, err := f(ctx, fl)
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
	return zero, s.gaveUp(ctx, fl, nil)
}

// gaveUp returns the error of a call that was not answered in time.
func (s *Store) gaveUp(ctx context.Context, fl *flight, last error) error {
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

// call sends a request, again and again until it is answered, and returns the reply.
func (s *Store) call(ctx context.Context, r *request) (any, error) {
	return within(ctx, s, func(ctx context.Context, fl *flight) (any, error) { return s.attempts(ctx, r, fl) })
}

func (s *Store) attempts(ctx context.Context, r *request, fl *flight) (any, error) {
	var to target
	for n := 0; ; n++ {
		before := fl.unsure.Load()
		fl.unsure.Store(before || !r.reads)
		reply, err := s.attempt(ctx, r, to)
		if err == nil || errors.Is(err, store.ErrUnconfirmed) {
			return reply, err
		}
		f := fateOf(err)
		unsure := before || f.received && !r.reads
		fl.unsure.Store(unsure)
		if !f.again {
			if unsure {
				return nil, fmt.Errorf("%w: %w", store.ErrUnsure, err)
			}
			return nil, err
		}
		to = f.to
		if s.cluster != nil && f.reload {
			s.cluster.ReloadState(ctx)
		}
		pause := time.Duration(0)
		if to.addr == "" || n > 3 {
			pause = min(time.Millisecond<<min(n, 10), 50*time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil, s.gaveUp(ctx, fl, err)
		case <-time.After(pause):
		}
	}
}

// attempt sends a request once. A server that hangs must not use up the whole time of
// the call: another may take its place.
func (s *Store) attempt(ctx context.Context, r *request, to target) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.longest)
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

// send sends a request over one connection of a node, with ASKING before it and WAIT
// after it where they are needed.
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

// callAll sends requests that read, those to the same node in one go, and what fails
// by itself.
func (s *Store) callAll(ctx context.Context, requests []*request) ([]any, error) {
	return within(ctx, s, func(ctx context.Context, fl *flight) ([]any, error) {
		replies := make([]any, len(requests))
		cmds := make([]*redis.Cmd, len(requests))
		s.pipelines(ctx, requests, cmds)
		for i, r := range requests {
			if cmds[i] != nil {
				if v, err := result(cmds[i]); err == nil && v != nil {
					replies[i] = v
					continue
				}
			}
			v, err := s.attempts(ctx, r, fl)
			if err != nil {
				return nil, err
			}
			replies[i] = v
		}
		return replies, nil
	})
}

func (s *Store) pipelines(ctx context.Context, requests []*request, cmds []*redis.Cmd) {
	ctx, cancel := context.WithTimeout(ctx, s.longest)
	defer cancel()
	pipes := make(map[*redis.Client]redis.Pipeliner)
	for i, r := range requests {
		node, err := s.node(ctx, r.keys[0], target{})
		if err != nil {
			continue
		}
		if pipes[node] == nil {
			pipes[node] = node.Pipeline()
		}
		cmds[i] = redis.NewCmd(ctx, r.command(false)...)
		_ = pipes[node].Process(ctx, cmds[i])
	}
	for _, pipe := range pipes {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
}
