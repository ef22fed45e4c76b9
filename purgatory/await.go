package purgatory

import "context"

// await is the operation of a goroutine that waits for its end.
type await struct {
	cond func() bool
	done chan error
}

func (w await) TryComplete() bool { return w.cond() }

func (w await) Complete(_ Outcome, cause error) { w.done <- cause }

// wait is where the goroutine blocks. It looks after its context itself, which costs
// less than a hook does.
func (w await) wait(ctx context.Context, h Pending, err error) error {
	if err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		h.Cancel(context.Cause(ctx)) // or somebody else has just ended it
		return <-w.done
	}
}
