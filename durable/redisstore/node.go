package redisstore

import (
	"context"

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
	c := s.targets[to.addr]
	if c == nil {
		c = redis.NewClient(clientOptions(s.cluster.Options(), to.addr))
		s.targets[to.addr] = c
	}
	return c, nil
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
