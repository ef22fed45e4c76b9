package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-782fa212/limbo/durable/store"
)

// D10: a shard without timers keeps a record of less than 200 bytes, however often it was used.
func TestShardRecordIsSmall(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{Shards: 1})
	for range 20 {
		for i := range 5 {
			r.put(r.entry(fmt.Sprint("k", i)))
		}
		r.end(store.Done, r.claim(5).Leases...)
	}
	records := 0
	for _, key := range r.raw.Keys(r.ctx, "*").Val() {
		if !strings.HasSuffix(key, ":m") {
			continue
		}
		records++
		used, err := r.raw.MemoryUsage(r.ctx, key).Result()
		r.NoError(err)
		t.Logf("%s: %d bytes", key, used)
		r.Less(used, int64(200))
	}
	r.Equal(1, records)
}
