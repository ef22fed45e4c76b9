package purgatory

import "context"

// await is an operation whose end a goroutine waits for.
type await struct {
	cond  func() bool
	ended chan error
}

func (a await) TryComplete() bool { return a.cond() }

func (a await) Complete(_ Outcome, cause error) { a.ended <- cause }

// wait blocks until the operation has ended. It watches the context itself, which costs less
// than a hook.
func (a await) wait(ctx context.Context, done <-chan struct{}, core *core, h Pending, err error) error {
	if err != nil {
		return err
	}
	select {
	case err := <-a.ended:
		return err
	case <-done:
		g := guard{ctx: ctx, done: done, core: core, h: h}
		g.cancel() // unless another call has just ended the operation
		return <-a.ended
	}
}
