package daemon

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
	"github.com/seed-782fa212/limbo/durable/redisstore"
)

func openStore(ctx context.Context, c Config) (durable.Store, error) {
	if dir, ok := strings.CutPrefix(c.Store, "pebble:"); ok {
		memory := int64(c.Memory) << 20
		return pebblestore.Open(dir, pebblestore.Options{
			Shards: c.Shards, Limits: c.Limits, Logger: c.Logger, CacheBytes: memory / 2, MemTableBytes: memory / 4,
		})
	}
	return openRedis(ctx, c)
}

func openRedis(ctx context.Context, c Config) (durable.Store, error) {
	client, err := redisstore.NewClient(c.Store)
	if err != nil {
		return nil, err
	}
	st, err := redisstore.Open(ctx, client, redisstore.Options{
		Namespace: c.Namespace, Shards: c.Shards, Limits: c.Limits, WaitReplicas: c.WaitReplicas,
	})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return withClient{st, client}, nil
}

// withClient closes the client after the store.
type withClient struct {
	durable.Store
	client redis.UniversalClient
}

func (s withClient) Close() error {
	err := s.Store.Close()
	_ = s.client.Close()
	return err
}

// storeName is Config.Store without its secrets. A folder is absolute, so that the log tells where
// the timers are.
func storeName(s string) string {
	if dir, ok := strings.CutPrefix(s, "pebble:"); ok {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return "pebble:" + dir
	}
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	u.RawQuery = ""
	return u.Redacted()
}
