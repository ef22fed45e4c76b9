package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A flag that is out of range is refused, and the error names it, its value and the range.
func TestBadFlags(t *testing.T) {
	for text, args := range map[string][]string{
		`-span is 1s, must be 5s to 10m`:                         {"-span", "1s"},
		`-span is 10m1s, must be 5s to 10m`:                      {"-span", "10m1s"},
		`-store is "pebble:x", must be pebble, redis or cluster`: {"-store", "pebble:x"},
		`there is an argument "x", must be flags only`:           {"x"},
		`flag provided but not defined: -tour`:                   {"-tour"},
	} {
		_, err := parse(args, io.Discard)
		require.ErrorContains(t, err, text)
	}
	o, err := parse([]string{"-store", "redis", "-json", "-span", "1m", "-seed", "7"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, options{Store: onRedis, JSON: true, Seed: 7, Timers: defaultTimers, Span: time.Minute}, o)
}
