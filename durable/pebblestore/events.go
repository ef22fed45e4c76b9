package pebblestore

import (
	"context"
	"fmt"

	"github.com/seed-782fa212/limbo/durable/store"
)

// maxQueued is how many events wait for a slow subscriber. Further events are dropped, and the
// subscriber gets a Gap.
const maxQueued = 1024

// subscriber is one call of Subscribe.
type subscriber struct {
	queue chan store.Event
	gap   chan struct{} // has capacity 1: events were dropped
}

// publish queues events for all subscribers. It does not block.
func (s *Store) publish(events ...store.Event) {
	if len(events) == 0 {
		return
	}
	s.subs.Lock()
	defer s.subs.Unlock()
	for sub := range s.subs.all {
		for _, e := range events {
			select {
			case sub.queue <- e:
			default:
				select {
				case sub.gap <- struct{}{}:
				default:
				}
			}
		}
	}
}

// Announce sends a Busy event to all subscribers; see [store.Store].
func (s *Store) Announce(ctx context.Context, e store.Event) error {
	if err := s.ready(ctx, e.Shard); err != nil {
		return err
	}
	if e.Kind != store.Busy {
		return fmt.Errorf("durable: an event of kind %d is announced, must be Busy (%d)", e.Kind, store.Busy)
	}
	s.publish(e)
	return nil
}

// Subscribe calls f with each event of this store; see [store.Store]. The first event is a Gap;
// another Gap follows whenever f was so slow that more than a thousand events waited for it.
func (s *Store) Subscribe(ctx context.Context, f func(store.Event)) error {
	if err := s.ready(ctx, 0); err != nil {
		return err
	}
	sub := &subscriber{queue: make(chan store.Event, maxQueued), gap: make(chan struct{}, 1)}
	sub.gap <- struct{}{}
	s.subs.Lock()
	s.subs.all[sub] = true
	s.subs.Unlock()
	defer func() {
		s.subs.Lock()
		delete(s.subs.all, sub)
		s.subs.Unlock()
	}()
	for {
		select {
		case <-sub.gap: // before the events that came after it
			f(store.Event{Kind: store.Gap})
			continue
		default:
		}
		select {
		case <-sub.gap:
			f(store.Event{Kind: store.Gap})
		case e := <-sub.queue:
			f(e)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closing:
			return s.closedError()
		case <-s.failed:
			return s.closedError()
		}
	}
}
