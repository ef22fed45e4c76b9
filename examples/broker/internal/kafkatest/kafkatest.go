package kafkatest

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// WaitLimit bounds every wait of these tests. Only a test that fails waits that long.
const WaitLimit = time.Minute

// Formatter encodes requests.
var Formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))

// Batch returns a record batch; change may break it before the checksum is computed.
func Batch(values []string, change ...func(*kmsg.RecordBatch)) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1,
		Magic:                2,
		LastOffsetDelta:      int32(len(values) - 1),
		ProducerID:           -1,
		ProducerEpoch:        -1,
		FirstSequence:        -1,
		NumRecords:           int32(len(values)),
		FirstTimestamp:       1000,
		MaxTimestamp:         1000 + int64(len(values)-1),
	}
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: int64(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // a length of 0 takes one byte
		b.Records = r.AppendTo(b.Records)
	}
	for _, f := range change {
		f(&b)
	}
	b.Length = int32(49 + len(b.Records))
	return Seal(b.AppendTo(nil))
}

// headerSizeOfBatch is the offset of a batch's first record.
const headerSizeOfBatch = 61

// Reframe makes raw look like a batch: it sets its length, format and checksum.
func Reframe(raw []byte) {
	if len(raw) >= headerSizeOfBatch {
		binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
		raw[16] = 2
	}
	Seal(raw)
}

// Seal sets a batch's checksum.
func Seal(raw []byte) []byte {
	if len(raw) >= headerSizeOfBatch {
		log.Seal(raw)
	}
	return raw
}

// RequireCode requires the code of the given error, or 0 for nil.
func RequireCode(t testing.TB, want *kerr.Error, got int16) {
	t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	require.Equal(t, code, got, "%v", kerr.ErrorForCode(got))
}

// From sets the producer id, epoch and first sequence of a batch.
func From(id int64, epoch int16, sequence int32) func(*kmsg.RecordBatch) {
	return func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = id, epoch, sequence }
}

// Context returns a context that ends with the test, or after WaitLimit.
func Context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), WaitLimit)
	t.Cleanup(cancel)
	return ctx
}
