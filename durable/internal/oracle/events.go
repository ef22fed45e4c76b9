package oracle

import (
	"context"

	"github.com/seed-782fa212/limbo/durable/store"
)

// subscriber is one call of Subscribe.
type subscriber struct {
	queue []store.Event // guarded by Store.Mu
	wake  chan struct{} // holds one
}

// publish queues e for all subscribers. The caller holds o.Mu.
func (o *Store) publish(e store.Event) {
	if o.Quiet {
		return
	}
	for sub := range o.subs {
		sub.queue = append(sub.queue, e)
		select {
		case sub.wake <- struct{}{}:
		default:
		}
	}
}

// announceEarlier publishes an event if the shard's first timer is due earlier than before, and
// returns the horizon. The caller holds o.Mu.
func (o *Store) announceEarlier(n int, before store.Horizon, now moment) store.Horizon {
	h := o.Parts[n].horizon(now)
	if h.NextDue != 0 && (before.NextDue == 0 || h.NextDue < before.NextDue) {
		o.publish(store.Event{Kind: store.Earlier, Shard: n, Due: h.NextDue})
	}
	return h
}

// Announce sends an event to all subscribers.
func (o *Store) Announce(ctx context.Context, e store.Event) error {
	_, _, err := o.begin(ctx, e.Shard)
	if err != nil {
		return err
	}
	defer o.Mu.Unlock()
	o.publish(e)
	return nil
}

// Subscribe calls f with each event, in order of publication, until ctx ends or o is closed.
func (o *Store) Subscribe(ctx context.Context, f func(store.Event)) error {
	sub := &subscriber{wake: make(chan struct{}, 1), queue: []store.Event{{Kind: store.Gap}}}
	if _, _, err := o.begin(ctx, 0); err != nil {
		return err
	}
	o.subs[sub] = true
	o.Mu.Unlock()
	defer func() {
		o.Mu.Lock()
		delete(o.subs, sub)
		o.Mu.Unlock()
	}()
	for {
		o.Mu.Lock()
		events := sub.queue
		sub.queue = nil
		o.Mu.Unlock()
		for _, e := range events {
			f(e)
		}
		select {
		case <-sub.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-o.done:
			return store.ErrClosed
		}
	}
}

// Close ends all subscriptions; further calls return ErrClosed.
func (o *Store) Close() error {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if !o.Closed {
		o.Closed = true
		close(o.done)
	}
	return nil
}
