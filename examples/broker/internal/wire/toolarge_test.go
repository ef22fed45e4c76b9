package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// At every version, a stripped request equals the request without its bytes. A frame whose end does
// not match its length is refused.
func TestStripped(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for version := int16(0); version <= 13; version++ {
		for range 50 {
			q := kmsg.NewPtrProduceRequest()
			q.SetVersion(version)
			kafkatest.Randomize(reflect.ValueOf(q).Elem(), rng)
			q.SetVersion(version)
			frame := kafkatest.Formatter.AppendRequest(nil, q, 7)[4:]
			strip := func(frame []byte) ([]byte, error) {
				s := stripper{r: bufio.NewReaderSize(bytes.NewReader(frame), 16), left: len(frame), maxOut: 1 << 20}
				return s.strip(1000)
			}
			got, err := strip(frame)
			require.NoError(t, err)
			for i := range q.Topics {
				for j := range q.Topics[i].Partitions {
					q.Topics[i].Partitions[j].Records = []byte{}
				}
			}
			require.Equal(t, kafkatest.Formatter.AppendRequest(nil, q, 7)[4:], got, "version %d", version)
			_, err = strip(append(bytes.Clone(frame), 0))
			require.ErrorIs(t, err, errTrailing)
			_, err = strip(frame[:len(frame)-1])
			require.Error(t, err)
		}
	}
	short := stripper{r: bufio.NewReader(bytes.NewReader(make([]byte, 100))), left: 100, maxOut: 4}
	_, err := short.strip(10)
	require.ErrorIs(t, err, errFrameSize)
}

// Stripping ends for arbitrary bytes.
func FuzzStripper(f *testing.F) {
	q := kmsg.NewPtrProduceRequest()
	for v := int16(0); v <= 13; v++ {
		q.SetVersion(v)
		kafkatest.Randomize(reflect.ValueOf(q).Elem(), rand.New(rand.NewPCG(1, uint64(v))))
		q.SetVersion(v)
		f.Add(uint8(v), q.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version uint8, body []byte) {
		frame := binary.BigEndian.AppendUint16(nil, 0)
		frame = binary.BigEndian.AppendUint16(frame, uint16(version)%14)
		frame = append(frame, 0, 0, 0, 1, 0xff, 0xff)
		frame = append(frame, body...)
		s := stripper{r: bufio.NewReader(bytes.NewReader(frame)), left: len(frame), maxOut: 1 << 12}
		got, err := s.strip(100)
		require.LessOrEqual(t, len(got), 1<<12)
		if err == nil {
			_, _ = decodeRequest(got, 100)
		}
	})
}
