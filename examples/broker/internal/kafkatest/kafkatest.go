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

// Patience bounds every wait of these tests. Nothing waits that long unless
// something is broken.
const Patience = time.Minute

// Formatter writes requests.
var Formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))

// Batch makes a record batch; change may break it before the checksum is made.
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
		r.Length = int32(len(r.AppendTo(nil)) - 1) // the length itself encoded as 0 is one byte
		b.Records = r.AppendTo(b.Records)
	}
	for _, f := range change {
		f(&b)
	}
	b.Length = int32(49 + len(b.Records))
	return Seal(b.AppendTo(nil))
}

// headerSizeOfBatch is up to its first record.
const headerSizeOfBatch = 61

// Reframe gives what is to be a batch the length, the format and the checksum of one.
func Reframe(raw []byte) {
	if len(raw) >= headerSizeOfBatch {
		binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
		raw[16] = 2
	}
	Seal(raw)
}

// Seal writes the checksum a batch should have.
func Seal(raw []byte) []byte {
	if len(raw) >= headerSizeOfBatch {
		log.Seal(raw)
	}
	return raw
}

// RequireCode requires that a response has the code of an error, or none.
func RequireCode(t testing.TB, want *kerr.Error, got int16) {
	t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	require.Equal(t, code, got, "%v", kerr.ErrorForCode(got))
}

// From makes a batch an idempotent producer's.
func From(id int64, epoch int16, sequence int32) func(*kmsg.RecordBatch) {
	return func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = id, epoch, sequence }
}

// Context ends with the test, and after Patience.
func Context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}
