package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// target is where an answer sent a request, of a Cluster; the zero target is where the
// slots were last seen.
type target struct {
	addr   string
	asking bool
}

// node returns the client of the server that a request with this key goes to.
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

// targetClient is the client of an address to which a Cluster sent a request.
type targetClient struct {
	*redis.Client
	used time.Time // last
}

// forgetTargets closes the clients that no request uses any more: a Cluster's nodes come
// and go, and each has connections. The caller has locked the store.
func (s *Store) forgetTargets(now time.Time) {
	for addr, c := range s.targets {
		if now.Sub(c.used) > maxCall+s.o.WaitTimeout { // longer than any attempt
			_ = c.Close()
			delete(s.targets, addr)
		}
	}
}

// clientOptions are what a ClusterClient gives to the clients of its nodes. It has no
// way to ask for the client of an address.
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
