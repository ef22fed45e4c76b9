package api

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

// The reader accepts only JSON, and decodes it as encoding/json does.
func FuzzTimer(f *testing.F) {
	f.Add([]byte(`{"key":"a","at":null,"after":"1h","topic":"\ud83d\ude00","callback":{"url":"http:\/\/a","method":"GET","headers":{"A":"\u0001","":"b"},"timeout":"5s"},"body":"ä\\ud800","body_base64":"AP8=","if_absent":true}`))
	f.Add([]byte(" { } \n"))
	f.Add([]byte(`{"callback":null,"if_absent":false}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want wire.Timer
		if err := decodeBytes(b, &got); err != nil {
			require.NotEmpty(t, asError(err).Message)
			return
		}
		require.NoError(t, json.Unmarshal(b, &want))
		for _, timer := range []*wire.Timer{&got, &want} {
			if len(timer.BodyBase64) == 0 {
				timer.BodyBase64 = nil
			}
			if timer.Callback != nil && len(timer.Callback.Headers) == 0 {
				timer.Callback.Headers = nil
			}
		}
		require.Equal(t, want, got)
	})
}

// The reader also decodes schedules as encoding/json does. An accepted schedule has planned times,
// or an error that names a field.
func FuzzSchedule(f *testing.F) {
	f.Add([]byte(`{"cron":"30 2 * * 1-5","zone":"Europe/Berlin","start":"2030-01-01T00:00:00Z","end":null,"limit":3,"jitter":"1m","overlap":"skip","missed":"all","catch_up":"1h","pause_on_dead":true,"topic":"t","callback":{"url":"http://a"},"body":"b","if_absent":false}`))
	f.Add([]byte(`{"every":"15m","offset":"3m","callback":{"url":"http://a"},"body_base64":"AP8="}`))
	f.Add([]byte(`{"every":"1ms","offset":"-3m","callback":{"url":"http://a"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want wire.Schedule
		if decodeBytes(b, &got) != nil {
			return
		}
		require.NoError(t, json.Unmarshal(b, &want))
		for _, s := range []*wire.Schedule{&got, &want} {
			if len(s.BodyBase64) == 0 {
				s.BodyBase64 = nil
			}
			if s.Callback != nil && len(s.Callback.Headers) == 0 {
				s.Callback.Headers = nil
			}
		}
		require.Equal(t, want, got)
		s, err := scheduleOf("a", &got)
		if err != nil {
			require.Equal(t, 400, asError(err).Status)
			return
		}
		_, err = s.Upcoming(time.UnixMilli(0), 1)
		var field *durable.FieldError
		if errors.As(err, &field) {
			require.Equal(t, strings.ToLower(field.Field[:1]), fieldError(field, nil).Field[:1])
			return
		}
		require.NoError(t, err)
	})
}
