package wire

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// The guard's layouts match the encoding of kmsg at every version: the walk ends exactly at a
// frame's end, and fails for a frame that is one byte shorter or longer.
func TestLayoutsAgreeWithKmsg(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for key, api := range apis {
		for v := api.min; v <= api.max; v++ {
			for range 50 {
				req := kmsg.RequestForKey(key)
				req.SetVersion(v)
				kafkatest.Randomize(reflect.ValueOf(req).Elem(), rng)
				req.SetVersion(v)
				body := req.AppendTo(nil)
				check := func(b []byte) error { return checkLayout(b, api.layout, v, req.IsFlexible(), 1000) }
				require.NoError(t, check(body), "%s %d: %+v", kmsg.NameForKey(key), v, req)
				require.Error(t, check(append(body[:len(body):len(body)], 0)), "%s %d with a byte more", kmsg.NameForKey(key), v)
				if len(body) > 0 {
					require.Error(t, check(body[:len(body)-1]), "%s %d with a byte less", kmsg.NameForKey(key), v)
				}
			}
		}
	}
}

// The memory that kmsg allocates for a frame that passes the guard is bounded, even for the worst
// case: the maximum number of elements, each as short as possible.
func TestDecodingIsBounded(t *testing.T) {
	limits, err := Config{}.WithDefaults()
	require.NoError(t, err)
	worst := 0.0
	for key, api := range apis {
		for v := api.min; v <= api.max; v++ {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			list := reflect.ValueOf(req).Elem().FieldByName("Topics")
			if !list.IsValid() {
				continue
			}
			list.Set(reflect.MakeSlice(list.Type(), limits.MaxArrays, limits.MaxArrays))
			frame := kafkatest.Formatter.AppendRequest(nil, req, 1)[4:]
			if len(frame) > limits.frameLimit(key) {
				continue
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decodeRequest(frame, limits.MaxArrays)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			allocated := after.TotalAlloc - before.TotalAlloc
			require.Less(t, allocated, uint64(8<<20), "%s %d", kmsg.NameForKey(key), v)
			worst = max(worst, float64(allocated)/float64(len(frame)))
		}
	}
	t.Logf("a decoded request is at most %.0f times its frame", worst)
}

// A hostile frame costs memory at most in proportion to its size, and does not reach kmsg, which
// spins on some of them.
func TestHostileFramesAreCheap(t *testing.T) {
	limits, err := Config{}.WithDefaults()
	require.NoError(t, err)
	for name, frame := range kafkatest.HostileFrames() {
		if len(frame) < 12 || int32(binary.BigEndian.Uint32(frame)) != int32(len(frame)-4) {
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeRequest(frame[4:], limits.MaxArrays)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
		if strings.Contains(name, "null") {
			continue // kmsg refuses these
		}
		require.True(t, slices.ContainsFunc([]error{
			errShortFrame, errUnknownKey, errVersion, errTruncated, errTrailing, errTooMany, errBrokerTag,
		}, func(refusal error) bool { return errors.Is(err, refusal) }), "%s: %v", name, err)
	}
}
