package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// target is the node to which a Cluster redirected a request; the zero target is the node that last
// had the slot.
type target struct {
	addr   string
	asking bool
}

// node returns the client of the server for a request with this key.
func (s *Store) node(ctx context.Context, key string, to target) (*redis.Client, error) {
	switch {
	case s.cluster == nil:
		return s.alone, nil
	case to.addr == "":
		return s.cluster.MasterForKey(ctx, key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, redis.ErrClosed
	}
	at, now := s.targets[to.addr], time.Now()
	if at == nil {
		s.forgetTargets(now)
		at = &targetClient{Client: redis.NewClient(clientOptions(s.cluster.Options(), to.addr))}
		s.targets[to.addr] = at
	}
	at.used = now
	return at.Client, nil
}

// targetClient is the client of an address to which a Cluster redirected a request.
type targetClient struct {
	*redis.Client
	used time.Time // last
}

// forgetTargets closes the clients that no request uses any more: a Cluster's nodes come and go,
// and each has connections. The caller has locked the store.
func (s *Store) forgetTargets(now time.Time) {
	for addr, c := range s.targets {
		if now.Sub(c.used) > maxCall+s.o.WaitTimeout { // longer than any attempt
			_ = c.Close()
			delete(s.targets, addr)
		}
	}
}

// clientOptions returns the options that a ClusterClient gives to the clients of its nodes. It
// cannot be asked for the client of an address.
func clientOptions(o *redis.ClusterOptions, addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect,
		Protocol: o.Protocol, Username: o.Username, Password: o.Password,
		CredentialsProvider:          o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		TLSConfig:                    o.TLSConfig,
		DialTimeout:                  o.DialTimeout, DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime,
		MaxRetries: -1, ContextTimeoutEnabled: true,
	}
}
