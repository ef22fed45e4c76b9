package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Store keeps timers in Redis or Valkey. It implements [store.Store], and all its methods are safe
// for concurrent use.
type Store struct {
	o              Options
	alone          *redis.Client        // nil with a Cluster
	cluster        *redis.ClusterClient // nil without
	attemptTimeout time.Duration        // of one attempt
	publish        string               // PUBLISH, SPUBLISH, or empty if nothing is announced
	workers        [2]string            // the keys of heartbeat.lua
	heartbeatClock serverClock          // of the server that has them
	shards         []*shard
	part           int             // maxPart, except in tests
	pingAfter      time.Duration   // pingAfter, except in tests
	ctx            context.Context // ended by Close
	close          context.CancelFunc
	clock          func() string // empty except in tests; see common.lua

	mu      sync.Mutex
	targets map[string]*targetClient // by address: redirections of a Cluster
}

var _ store.Store = (*Store)(nil)

// Open opens the store of a namespace, and creates it if it is new. Close leaves the client open.
//
// The client is a *redis.Client or a *redis.ClusterClient. Its own retries must be off (MaxRetries
// -1), and ContextTimeoutEnabled on; [NewClient] makes such a client. Open refuses a server that is
// older than 6.2, or that evicts keys when it is full, and a user that may not publish on the
// channels {namespace:shard}:e. The error is store.ErrShards if the store has another number of
// shards.
func Open(ctx context.Context, client redis.UniversalClient, o Options) (*Store, error) {
	return open(ctx, client, o, func() string { return "" })
}

func open(ctx context.Context, client redis.UniversalClient, o Options, clock func() string) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		o: o, clock: clock, part: maxPart, pingAfter: pingAfter,
		targets: make(map[string]*targetClient),
	}
	tag := "{" + o.Namespace + ":heartbeats}"
	s.workers = [2]string{tag, tag + ":status"}
	s.attemptTimeout = min(longestAttempt, o.CallTimeout/3)
	if o.WaitReplicas > 0 {
		s.attemptTimeout += o.WaitTimeout
	}
	if err := s.setClient(client); err != nil {
		return nil, err
	}
	id := store.NewID().String()[:16]
	for n := range o.Shards {
		s.shards = append(s.shards, newShard(o.Namespace, n, id))
	}
	s.ctx, s.close = context.WithCancel(context.Background())
	if err := s.begin(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// setClient checks the client's options, and sets alone or cluster.
func (s *Store) setClient(client redis.UniversalClient) error {
	var retries int
	var timeouts bool
	var read time.Duration
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		s.alone, retries, timeouts, read = c, o.MaxRetries, o.ContextTimeoutEnabled, o.ReadTimeout
	case *redis.ClusterClient:
		o := c.Options()
		s.cluster, retries, timeouts, read = c, max(o.MaxRetries, 0), o.ContextTimeoutEnabled, o.ReadTimeout
	default:
		return fmt.Errorf("redisstore: the client is a %T, must be a *redis.Client or a *redis.ClusterClient", client)
	}
	switch {
	case retries != 0:
		return fmt.Errorf("redisstore: the client repeats requests by itself: its MaxRetries must be -1")
	case !timeouts:
		return fmt.Errorf("redisstore: the client does not heed deadlines: its ContextTimeoutEnabled must be true")
	case s.o.WaitReplicas > 0 && read > 0 && s.o.WaitTimeout >= read:
		return fmt.Errorf("redisstore: Options.WaitTimeout is %v, must be less than the client's ReadTimeout, %v", s.o.WaitTimeout, read)
	}
	return nil
}

// begin checks the servers, and creates or reads the shards' records.
func (s *Store) begin(ctx context.Context) error {
	if err := s.inspected(ctx); err != nil {
		return explained(err)
	}
	// The first shard alone: a store with another number of shards stays unchanged.
	for _, part := range [][]*shard{s.shards[:1], s.shards[1:]} {
		requests := make([]*request, len(part))
		for i, sh := range part {
			requests[i] = s.read(sh, openScript, s.o.Shards)
		}
		replies, err := s.callAll(ctx, requests, 0)
		if err != nil {
			return explained(err)
		}
		for i, v := range replies {
			r := replyOf(v)
			have, present := r.text(0), r.millis(1)
			switch {
			case r.bad:
				return errReply
			case have != strconv.Itoa(s.o.Shards):
				return fmt.Errorf("%w: %s has %s, Options.Shards is %d", store.ErrShards, part[i].tag, have, s.o.Shards)
			}
			part[i].clock.observe(present)
			if s.cluster == nil {
				s.heartbeatClock.observe(present)
			}
		}
	}
	return s.tryPublish(ctx)
}

// tryPublish returns an error if this client may not publish. Scripts publish after they have
// written, and do not report a failure to publish.
func (s *Store) tryPublish(ctx context.Context) error {
	if s.publish == "" {
		return nil
	}
	requests := make([]*request, len(s.shards))
	for n, sh := range s.shards {
		requests[n] = s.read(sh, announceScript, "") // subscribers ignore it
	}
	_, err := s.callAll(ctx, requests, 0)
	if code(err) != "" && !classify(err).retriable {
		return fmt.Errorf("redisstore: the client's user may not announce: its rights must have +%s and &{%s:* in them: %w",
			strings.ToLower(s.publish), s.o.Namespace, err)
	}
	return explained(err)
}

// inspected calls inspect within the time of a call.
func (s *Store) inspected(ctx context.Context) error {
	ctx, cancel, err := s.limit(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = s.within(ctx, func(fl *flight) (any, error) { return nil, s.inspect(ctx, fl) })
	return err
}

// inspect queries the properties of all servers until they answer.
func (s *Store) inspect(ctx context.Context, fl *flight) error {
	for {
		sharded, err := s.inspectOnce(ctx)
		switch {
		case err == nil && s.cluster == nil:
			s.publish = "PUBLISH"
			return nil
		case err == nil:
			if sharded {
				s.publish = "SPUBLISH"
			}
			return nil
		case !classify(err).retriable || strings.HasPrefix(err.Error(), "redisstore: "):
			return err
		}
		select {
		case <-ctx.Done():
			return s.noAnswerError(ctx, fl, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// inspectOnce returns whether all servers have sharded pub/sub.
func (s *Store) inspectOnce(ctx context.Context) (sharded bool, err error) {
	sharded = true
	var mu sync.Mutex
	ask := func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx).Result()
		if err != nil {
			return err
		}
		has, err := checkServer(info, s.cluster != nil)
		mu.Lock()
		defer mu.Unlock()
		sharded = sharded && has
		return err
	}
	if s.cluster != nil {
		err = s.cluster.ForEachMaster(ctx, ask)
	} else {
		err = ask(ctx, s.alone)
	}
	return sharded, err
}

// checkServer checks the output of INFO.
func checkServer(info string, cluster bool) (sharded bool, err error) {
	field := make(map[string]string)
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[k] = v
		}
	}
	var major, minor int
	version := field["redis_version"]
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	policy := field["maxmemory_policy"]
	switch {
	case major < 6 || major == 6 && minor < 2:
		return false, fmt.Errorf("redisstore: the server is Redis %q, must be 6.2 or later", version)
	case !cluster && field["cluster_enabled"] == "1":
		return false, fmt.Errorf("redisstore: the server is a node of a Cluster, so the client must be a *redis.ClusterClient")
	case !cluster && field["role"] == "slave":
		return false, fmt.Errorf("redisstore: the server is a replica, so it takes no changes")
	case policy != "" && policy != "noeviction":
		return false, fmt.Errorf("redisstore: the server evicts keys when it is full: its maxmemory-policy is %s, must be noeviction", policy)
	}
	return major >= 7, nil
}

// Shards returns the number of shards.
func (s *Store) Shards() int { return s.o.Shards }

// Close makes calls in progress return store.ErrClosed, or store.ErrUnsure, and all later ones
// store.ErrClosed. The client stays open.
func (s *Store) Close() error {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, c := range s.targets {
		_ = c.Close()
		delete(s.targets, addr)
	}
	return nil
}

// NewClient returns a client for Open: a *redis.Client for redis:// and rediss://, a
// *redis.ClusterClient for redis+cluster:// and rediss+cluster://. The rest of the address is as in
// redis.ParseURL and redis.ParseClusterURL.
func NewClient(address string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if base, ok := strings.CutSuffix(scheme, "+cluster"); ok {
		o, err := redis.ParseClusterURL(base + "://" + rest)
		if err != nil {
			return nil, fmt.Errorf("redisstore: %w", err)
		}
		o.MaxRetries, o.ContextTimeoutEnabled = -1, true
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	return redis.NewClient(o), nil
}
