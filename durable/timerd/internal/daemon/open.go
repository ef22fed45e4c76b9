package daemon

import (
	"context"
	"net/url"
	"strings"

	"github.com/seed-782fa212/limbo/durable/pebblestore"
	"github.com/seed-782fa212/limbo/durable/store"
)

func openStore(ctx context.Context, c Config) (store.Store, error) {
	if dir, ok := strings.CutPrefix(c.Store, "pebble:"); ok {
		return pebblestore.Open(dir, pebblestore.Options{Shards: c.Shards, Limits: c.Limits, Logger: c.Logger})
	}
	return openRedis(ctx, c)
}

// storeName is Config.Store without what may be secret in it.
func storeName(s string) string {
	u, err := url.Parse(s)
	if err != nil || strings.HasPrefix(s, "pebble:") {
		return s
	}
	u.RawQuery = ""
	return u.Redacted()
}
