package redisstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	maxNamespace   = 64
	maxCall        = 30 * time.Second // replies are kept for twice as long
	defaultCall    = 5 * time.Second
	defaultWait    = time.Second
	defaultShards  = 16
	defaultNS      = "limbo"
	longestAttempt = 2 * time.Second
)

// Options configure a [Store]. The zero value is good for most uses.
type Options struct {
	// Namespace begins the names of all keys. Stores of the same namespace are one store. It has 1
	// to 64 bytes, and no braces. Default "limbo".
	Namespace string
	// Shards divide the timers over the slots of a Cluster and over workers. The store keeps the
	// number; opening it with another one is refused. Fewer shards make fewer, larger requests: with
	// 4, a single server schedules 1.4 times as many timers a second in batches of 100, and
	// completes 1.2 times as many. 1 to store.MaxShards, default 16.
	Shards int
	// Limits apply to each shard.
	Limits store.Limits
	// WaitReplicas is how many replicas must confirm a change before it is answered; if fewer do,
	// the error is store.ErrUnconfirmed. It applies to all changes except claims, extensions and
	// heartbeats. Default 0.
	WaitReplicas int
	// WaitTimeout bounds the wait for replicas. It must be less than the client's ReadTimeout and
	// than CallTimeout. Default 1 s.
	WaitTimeout time.Duration
	// CallTimeout is the deadline of a call whose context has none, from 100 ms to 30 s. No call
	// takes longer than 30 s. Default 5 s.
	CallTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" {
		o.Namespace = defaultNS
	}
	if o.Shards == 0 {
		o.Shards = defaultShards
	}
	if o.WaitTimeout == 0 {
		o.WaitTimeout = defaultWait
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultCall
	}
	switch {
	case len(o.Namespace) > maxNamespace:
		return o, fmt.Errorf("redisstore: Options.Namespace is %d bytes long, must be 1 to %d", len(o.Namespace), maxNamespace)
	case strings.ContainsAny(o.Namespace, "{}"):
		return o, fmt.Errorf("redisstore: Options.Namespace is %q, must not have a brace", o.Namespace)
	case o.Shards < 1 || o.Shards > store.MaxShards:
		return o, fmt.Errorf("redisstore: Options.Shards is %d, must be 1 to %d, or 0 for %d", o.Shards, store.MaxShards, defaultShards)
	case o.WaitReplicas < 0:
		return o, fmt.Errorf("redisstore: Options.WaitReplicas is %d, must be 0 or more", o.WaitReplicas)
	case o.CallTimeout < 100*time.Millisecond || o.CallTimeout > maxCall:
		return o, fmt.Errorf("redisstore: Options.CallTimeout is %v, must be 100ms to %v, or 0 for %v", o.CallTimeout, maxCall, defaultCall)
	case o.WaitTimeout < time.Millisecond:
		return o, fmt.Errorf("redisstore: Options.WaitTimeout is %v, must be 1ms or more, or 0 for %v", o.WaitTimeout, defaultWait)
	case o.WaitReplicas > 0 && o.WaitTimeout >= o.CallTimeout:
		return o, fmt.Errorf("redisstore: Options.WaitTimeout is %v, must be less than CallTimeout, %v", o.WaitTimeout, o.CallTimeout)
	}
	var err error
	o.Limits, err = o.Limits.WithDefaults()
	return o, err
}
