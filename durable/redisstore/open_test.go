package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"Options.Namespace is 65 bytes long, must be 1 to 64":                       {Namespace: strings.Repeat("n", 65)},
		`Options.Namespace is "a{b", must not have a brace`:                         {Namespace: "a{b"},
		"Options.Shards is 1025, must be 1 to 1024, or 0 for 16":                    {Shards: 1025},
		"Options.Shards is -1":                                                      {Shards: -1},
		"Options.WaitReplicas is -1, must be 0 or more":                             {WaitReplicas: -1},
		"Options.CallTimeout is 99ms, must be 100ms to 30s, or 0 for 5s":            {CallTimeout: 99 * time.Millisecond},
		"Options.CallTimeout is 31s":                                                {CallTimeout: 31 * time.Second},
		"Options.WaitTimeout is -1ns, must be 1ms or more, or 0 for 1s":             {WaitTimeout: -1},
		"Options.WaitTimeout is 5s, must be less than CallTimeout, 5s":              {WaitReplicas: 1, WaitTimeout: 5 * time.Second},
		"Options.WaitTimeout is 6s, must be less than the client's ReadTimeout, 5s": {WaitReplicas: 1, WaitTimeout: 6 * time.Second, CallTimeout: 20 * time.Second},
		"Limits.MaxDead is -1":                                                      {Limits: store.Limits{MaxDead: -1}},
	} {
		_, err := Open(t.Context(), newClient(t, redis.Options{Addr: "127.0.0.1:1"}), o)
		require.ErrorContains(t, err, want)
	}
	o, err := Options{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, Options{
		Namespace: "limbo", Shards: 16, Limits: store.Limits{MaxDead: 10_000},
		WaitTimeout: time.Second, CallTimeout: 5 * time.Second,
	}, o)
}

func TestClientIsChecked(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]redis.UniversalClient{
		"the client repeats requests by itself: its MaxRetries must be -1": redis.NewClient(&redis.Options{ContextTimeoutEnabled: true}),
		"does not heed deadlines: its ContextTimeoutEnabled must be true":  redis.NewClient(&redis.Options{MaxRetries: -1}),
		"redisstore: the client repeats requests by itself":                redis.NewClusterClient(&redis.ClusterOptions{MaxRetries: 2, ContextTimeoutEnabled: true}),
		"the client is a *redis.Ring, must be a *redis.Client":             redis.NewRing(&redis.RingOptions{}),
	} {
		_, err := Open(t.Context(), c, Options{})
		require.ErrorContains(t, err, want)
		_ = c.Close()
	}
	for _, address := range []string{"redis://user:secret@127.0.0.1:1/0", "redis+cluster://127.0.0.1:1?addr=127.0.0.1:2"} {
		c, err := NewClient(address)
		require.NoError(t, err)
		require.NoError(t, (&Store{}).setClient(c))
		_ = c.Close()
	}
	for _, address := range []string{"http://a", "http+cluster://a", "redis://127.0.0.1:x"} {
		_, err := NewClient(address)
		require.ErrorContains(t, err, "redisstore: ")
	}
}

func TestServerIsChecked(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		"redis_version:6.0.16\r\n": `the server is Redis "6.0.16", must be 6.2 or later`,
		"":                         `the server is Redis ""`,
		"redis_version:7.0.15\r\ncluster_enabled:1\r\n":             "is a node of a Cluster, so the client must be a *redis.ClusterClient",
		"redis_version:7.0.15\r\nrole:slave\r\n":                    "is a replica",
		"redis_version:7.0.15\r\nmaxmemory_policy:volatile-ttl\r\n": "its maxmemory-policy is volatile-ttl, must be noeviction",
	} {
		_, err := checkServer(info, false)
		require.ErrorContains(t, err, want)
	}
	for info, sharded := range map[string]bool{
		"redis_version:6.2.0\r\nmaxmemory_policy:noeviction\r\n":       false,
		"redis_version:7.0.0\r\ncluster_enabled:1\r\nrole:slave\r\n":   true,
		"redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nrole:master\n": true,
		"redis_version:10.0.0\r\n":                                     true,
	} {
		has, err := checkServer(info, true)
		require.NoError(t, err)
		require.Equal(t, sharded, has)
	}
}

// D13, case 20: each shard's record holds the number of shards, and another is refused.
func TestAnotherNumberOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{Shards: 4})
	keys := r.raw.Keys(r.ctx, "*").Val()
	r.Len(keys, 4)
	for _, shards := range []int{1, 3, 5, 16} {
		o := r.o
		o.Shards = shards
		_, err := Open(r.ctx, r.raw, o)
		r.ErrorIs(err, store.ErrShards)
		r.ErrorContains(err, "has 4, Options.Shards is")
	}
	r.ElementsMatch(keys, r.raw.Keys(r.ctx, "*").Val(), "a store that was refused has left something")
	r.Equal(4, r.s.Shards())
	// A claim of a store that was opened before the record changed.
	r.NoError(r.raw.HSet(r.ctx, r.s.shards[2].names[10], "s", 8).Err())
	_, _, err := r.s.Claim(r.ctx, 2, newClaim(1))
	r.ErrorIs(err, store.ErrShards)
	_, err = Open(r.ctx, r.raw, r.o)
	r.ErrorIs(err, store.ErrShards)
}

func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	c, err := NewClient("redis://" + srv.addr)
	require.NoError(t, err)
	s, err := Open(t.Context(), c, Options{CallTimeout: maxCall})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, c.Close())
	srv.config(t, "maxmemory-policy", "allkeys-lru")
	_, err = Open(t.Context(), srv.client(t), Options{CallTimeout: maxCall})
	require.ErrorContains(t, err, "maxmemory-policy is allkeys-lru")
	srv.config(t, "maxmemory-policy", "noeviction")

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.addr}, ContextTimeoutEnabled: true})
	defer cluster.Close()
	_, err = Open(t.Context(), cluster, Options{CallTimeout: maxCall})
	require.ErrorContains(t, err, "cluster support disabled")

	// Case 19: a wrong password is an error at once.
	srv.config(t, "requirepass", "secret")
	for password, want := range map[string]string{"": "NOAUTH", "wrong": "WRONGPASS"} {
		c := redis.NewClient(&redis.Options{Addr: srv.addr, MaxRetries: -1, ContextTimeoutEnabled: true, Password: password})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		_, err = Open(ctx, c, Options{CallTimeout: maxCall})
		cancel()
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
}
