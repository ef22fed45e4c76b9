package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The reader accepts only JSON, and reads it as encoding/json does.
func FuzzTimer(f *testing.F) {
	f.Add([]byte(`{"key":"a","at":null,"after":"1h","topic":"\ud83d\ude00","callback":{"url":"http:\/\/a","method":"GET","headers":{"A":"\u0001","":"b"},"timeout":"5s"},"body":"ä\\ud800","body_base64":"AP8=","if_absent":true}`))
	f.Add([]byte(" { } \n"))
	f.Add([]byte(`{"callback":null,"if_absent":false}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newReader(b)
		var got, want Timer
		if err := got.read(r, ""); err != nil {
			require.NotEmpty(t, asError(err).Message)
			return
		}
		if r.End() != nil {
			return
		}
		require.NoError(t, json.Unmarshal(b, &want))
		for _, timer := range []*Timer{&got, &want} {
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
