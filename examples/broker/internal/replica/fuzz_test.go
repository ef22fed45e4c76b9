package replica

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// FuzzProduceBatch passes arbitrary bytes as a record batch. An accepted batch must be read back
// unchanged, at the next offsets.
func FuzzProduceBatch(f *testing.F) {
	f.Add(kafkatest.Batch([]string{"a"}), true)
	f.Add(kafkatest.Batch([]string{"a", "b", "c"}, kafkatest.From(5, 0, 0)), true)
	f.Add(kafkatest.Batch([]string{"a"}, func(b *kmsg.RecordBatch) { b.Attributes = 2 }), true)
	f.Add(kafkatest.Batch([]string{"a"})[:50], false)
	f.Add([]byte{}, false)
	const (
		maxBatch    = 32 << 10
		checksummed = 21 // from there on
	)
	limits, err := Config{MaxProducers: 4}.WithDefaults()
	require.NoError(f, err)
	p := New(&limits, meta.PartitionKey{}, 0, new(atomic.Int64), noUptime, Stored{})
	p.Assign(&meta.Topic{Name: "t", Settings: meta.Settings{Retention: 8 << 10, MinISR: 1}}, meta.Assignment{Replicas: []int32{0}, ISR: []int32{0}}, 0)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal { // without this, hardly any input passes the checksum
			data = append([]byte(nil), data...)
			kafkatest.Reframe(data)
		}
		before := append([]byte(nil), data...)
		b, kafkaErr := log.ParseBatch(data, 9, maxBatch)
		if kafkaErr != nil {
			return
		}
		next := p.log.End()
		done, kafkaErr := p.Append(data, &b, true)
		require.Equal(t, before, data, "the connection's buffer was written to")
		require.NoError(t, p.log.Verify())
		require.LessOrEqual(t, len(p.producers), limits.MaxProducers)
		if kafkaErr != nil || !done.Stored {
			require.Equal(t, next, p.log.End())
			return
		}
		require.Equal(t, next, done.Base)
		got := p.Read(done.Base, 0, false, 0, true)
		require.Len(t, got.Batches, 1)
		var out kmsg.RecordBatch
		require.NoError(t, out.ReadFrom(got.Batches[0]))
		require.Equal(t, next, out.FirstOffset)
		require.Equal(t, before[checksummed:], got.Batches[0][checksummed:])
		for _, ts := range []int64{0, b.FirstTimestamp, b.MaxTimestamp, MaxTimestampOffset} {
			offset, _, _, kafkaErr := p.OffsetFor(ts, -1)
			require.Nil(t, kafkaErr)
			if ts == LatestOffset { // a valid timestamp of a batch, but with another meaning in a request
				require.Equal(t, p.log.End(), offset)
			} else if offset != -1 && (offset < p.log.Start() || offset >= p.log.End()) {
				require.Fail(t, "an offset outside the log", "%d for %d", offset, ts)
			}
		}
	})
}
