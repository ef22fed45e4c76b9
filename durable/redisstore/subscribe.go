package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	regroupInterval = 500 * time.Millisecond // between two reads of the slots
	renewDelay      = 100 * time.Millisecond // before a lost subscription is renewed

	// pingAfter is how long a connection receives nothing before it is pinged, and pongTimeout how
	// long the server then has to answer. Polls find the events missed during that time, at most a
	// second later. Of the 30 commands a second of ten idle workers, 29.2 are polls and heartbeats.
	pingAfter   = 15 * time.Second
	pongTimeout = 2 * time.Second
)

// Announce sends a Busy event to all subscribers; see [store.Store]. In a Cluster older than 7.0 it
// does nothing.
func (s *Store) Announce(ctx context.Context, e store.Event) error {
	if s.publish == "" {
		return ctx.Err()
	}
	_, err := s.call(ctx, s.read(s.shards[e.Shard], announceScript, "B"+e.From))
	return explained(err)
}

// Subscribe calls f with each event; see [store.Store]. In a Cluster from 7.0 there is one
// subscription for each node, which follows the slots.
func (s *Store) Subscribe(ctx context.Context, f func(store.Event)) error {
	if s.ctx.Err() != nil {
		return store.ErrClosed
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if s.publish == "" {
		f(store.Event{Kind: store.Gap})
		<-inner.Done()
	} else {
		sub := &subscription{s: s, f: f, listeners: make(map[*redis.Client]*listener), numbers: make(map[string]int)}
		for n, sh := range s.shards {
			sub.numbers[sh.channel] = n
		}
		sub.follow(inner)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return store.ErrClosed
}

// subscription is one call of Subscribe.
type subscription struct {
	s       *Store
	numbers map[string]int // shards by channel
	wg      sync.WaitGroup

	mu        sync.Mutex // held while f is called
	f         func(store.Event)
	listeners map[*redis.Client]*listener
	ready     bool // all listeners were active at the same time once: f was notified
}

// listener is the subscription to one node.
type listener struct {
	channels []string
	cancel   context.CancelFunc
	active   bool // subscribed to all channels; guarded by subscription.mu
}

// follow keeps a listener for each node that has one of the shards, until ctx ends.
func (sub *subscription) follow(ctx context.Context) {
	tick := time.NewTicker(regroupInterval)
	defer tick.Stop()
	for {
		if groups, err := sub.s.groups(ctx); err == nil {
			sub.listenTo(ctx, groups)
		}
		select {
		case <-ctx.Done():
			sub.wg.Wait() // f is not called after Subscribe has returned
			return
		case <-tick.C:
		}
	}
}

// groups returns the channels by node.
func (s *Store) groups(ctx context.Context) (map[*redis.Client][]string, error) {
	groups := make(map[*redis.Client][]string)
	for _, sh := range s.shards {
		node, err := s.node(ctx, sh.tag, target{})
		if err != nil {
			return nil, err
		}
		groups[node] = append(groups[node], sh.channel)
	}
	return groups, nil
}

func (sub *subscription) listenTo(ctx context.Context, groups map[*redis.Client][]string) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for node, l := range sub.listeners {
		if !slices.Equal(l.channels, groups[node]) {
			l.cancel()
			delete(sub.listeners, node)
		}
	}
	for node, channels := range groups {
		if sub.listeners[node] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		l := &listener{channels: channels, cancel: cancel}
		sub.listeners[node] = l
		sub.wg.Go(func() {
			defer cancel()
			sub.keepListening(ctx, node, l)
		})
	}
}

// keepListening renews the subscription to a node until ctx ends.
func (sub *subscription) keepListening(ctx context.Context, node *redis.Client, l *listener) {
	for {
		err := sub.listen(ctx, node, l)
		sub.mu.Lock()
		l.active = false
		sub.mu.Unlock()
		if sub.s.cluster != nil && classify(err).reload {
			sub.s.cluster.ReloadState(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewDelay):
		}
	}
}

var errLost = errors.New("redisstore: the subscription was lost")

// listen subscribes, and calls f until the subscription is lost. go-redis would renew it silently,
// and with one command for all channels, which a Cluster refuses.
func (sub *subscription) listen(ctx context.Context, node *redis.Client, l *listener) error {
	ps := node.Subscribe(ctx)
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()
	defer func() { _ = ps.Close() }()
	if sub.s.cluster == nil {
		if err := ps.Subscribe(ctx, l.channels...); err != nil {
			return err
		}
	} else {
		for _, channel := range l.channels {
			if err := ps.SSubscribe(ctx, channel); err != nil {
				return err
			}
		}
	}
	confirmed, asked := 0, false
	for {
		patience := sub.s.pingAfter
		if asked {
			patience = pongTimeout
		}
		message, err := ps.ReceiveTimeout(ctx, patience)
		var timeout net.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &timeout) && timeout.Timeout():
			if asked {
				return errLost
			}
			asked = true
			if err := ps.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		asked = false
		switch m := message.(type) {
		case *redis.Subscription:
			if m.Kind != "subscribe" && m.Kind != "ssubscribe" || confirmed == len(l.channels) {
				return errLost // the slot has moved, or go-redis has renewed it
			}
			confirmed++
			if confirmed == len(l.channels) {
				sub.activate(l)
			}
		case *redis.Message:
			sub.deliver(m)
		}
	}
}

// activate marks a listener as active, and calls f with a Gap, because events may have been missed:
// first when all listeners are active, then each time that one is active again.
func (sub *subscription) activate(l *listener) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	l.active = true
	if !sub.ready {
		for _, other := range sub.listeners {
			if !other.active {
				return
			}
		}
	}
	sub.ready = true
	sub.f(store.Event{Kind: store.Gap})
}

// deliver calls f with the events of a message.
func (sub *subscription) deliver(m *redis.Message) {
	n, known := sub.numbers[m.Channel]
	if !known || m.Payload == "" {
		return
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	body := m.Payload[1:]
	switch m.Payload[0] {
	case 'E':
		if due, err := strconv.ParseInt(body, 10, 64); err == nil {
			sub.f(store.Event{Kind: store.Earlier, Shard: n, Due: store.Millis(due)})
		}
	case 'B':
		sub.f(store.Event{Kind: store.Busy, Shard: n, From: body})
	case 'C':
		for _, h := range decodeHolders(body) {
			sub.f(store.Event{Kind: store.CancelRun, Shard: n, Holder: h})
		}
	}
}

// decodeHolders decodes the message of cancel.lua: for each run the fence, the token, the length of
// the key in two bytes, and the key.
func decodeHolders(s string) (holders []store.Holder) {
	const fixed = 8 + 16 + 2
	for b := []byte(s); len(b) >= fixed; {
		h := store.Holder{Fence: binary.LittleEndian.Uint64(b)}
		copy(h.Token[:], b[8:])
		n := fixed + int(binary.LittleEndian.Uint16(b[24:]))
		if len(b) < n {
			break
		}
		h.Key = string(b[fixed:n])
		holders, b = append(holders, h), b[n:]
	}
	return holders
}
