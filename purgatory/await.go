package purgatory

import "context"

// await is the operation of a goroutine that waits for its end.
type await struct {
	cond  func() bool
	ended chan error
}

func (w await) TryComplete() bool { return w.cond() }

func (w await) Complete(_ Outcome, cause error) { w.ended <- cause }

// wait blocks the goroutine. It watches the context itself, which costs less than a hook.
func (w await) wait(ctx context.Context, done <-chan struct{}, core *core, h Pending, err error) error {
	if err != nil {
		return err
	}
	select {
	case err := <-w.ended:
		return err
	case <-done:
		g := guard{ctx: ctx, done: done, core: core, h: h}
		g.cancel() // or another call has just ended it
		return <-w.ended
	}
}
