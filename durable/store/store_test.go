package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The shards and lanes of keys and topics are part of the engines' formats.
func TestShardsAndLanesNeverChange(t *testing.T) {
	require.Equal(t, 14, ShardOf("", 16))
	require.Equal(t, 8, ShardOf("a", 16))
}

func TestShardsAndLanesAreEven(t *testing.T) {
	const n, shards = 100_000, 16
	var inShard [shards]int
	var inLane [Lanes]int
	for i := range n {
		inShard[ShardOf(fmt.Sprint("order-", i), shards)]++
		inLane[LaneOf(fmt.Sprint("topic", i))]++
	}
	for _, k := range inShard {
		require.InDelta(t, n/shards, k, 5*79) // five standard deviations
	}
	for _, k := range inLane {
		require.InDelta(t, n/Lanes, k, 5*137)
	}
}

// D2: due times are rounded up.
func TestNeverRoundedToEarlier(t *testing.T) {
	at := time.UnixMilli(1000)
	require.Equal(t, Millis(1000), MillisAt(at))
	require.Equal(t, Millis(1001), MillisAt(at.Add(1)))
	require.Equal(t, Millis(-1), MillisAt(time.UnixMilli(-2).Add(1)))
	require.Equal(t, Millis(0), MillisOf(-1))
	require.Equal(t, Millis(1), MillisOf(1))
	require.Equal(t, Millis(1), MillisOf(time.Millisecond))
	require.Equal(t, Millis(2), MillisOf(time.Millisecond+1))
	require.Equal(t, MaxMillis, After(5, time.Duration(1<<63-1)))
	require.Equal(t, Millis(7), Entry{After: 2 * time.Millisecond}.Due(5))
	require.Equal(t, Millis(3), Entry{At: 3, After: time.Hour}.Due(5))
}

func TestBoundsAreNamed(t *testing.T) {
	claim := Claim{Worker: "w", Max: 1, MaxBytes: 1, Lease: time.Second, MaxAttempts: 1}
	with := func(f func(*Claim)) error { c := claim; f(&c); return c.Check() }
	for want, err := range map[string]error{
		"a timer's key is 0 bytes long, must be 1 to 512":                                Entry{}.Check(),
		"a timer's key is 513 bytes long, must be 1 to 512":                              Move{Key: strings.Repeat("k", 513)}.Check(),
		`the topic of timer "k" is 129 bytes long, must be at most 128`:                  Entry{Key: "k", Topic: strings.Repeat("t", 129)}.Check(),
		`the body of timer "k" is 65537 bytes long, must be at most 65536`:               Entry{Key: "k", Body: make([]byte, 65537)}.Check(),
		`timer "k" is due at -1 ms after 1970, must be at 0 to 9223372036854`:            Entry{Key: "k", At: -1}.Check(),
		`timer "k" is due at 9223372036855 ms after 1970, must be at 0 to 9223372036854`: Move{Key: "k", At: MaxMillis + 1}.Check(),
		"a worker's name is 0 bytes long, must be 1 to 128":                              with(func(c *Claim) { c.Worker = "" }),
		"Claim.Max is 501, must be 1 to 500":                                             with(func(c *Claim) { c.Max = 501 }),
		"Claim.MaxBytes is 0, must be 1 to 1048576":                                      with(func(c *Claim) { c.MaxBytes = 0 }),
		"Claim.Lease is 1ms, must be 100ms to 24h0m0s":                                   with(func(c *Claim) { c.Lease = time.Millisecond }),
		"Claim.MaxAttempts is 0, must be 1 or more":                                      with(func(c *Claim) { c.MaxAttempts = 0 }),
		"Claim.FirstLane is 5, must be 0 to 4":                                           with(func(c *Claim) { c.FirstLane = 5 }),
	} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, claim.Check())
	require.NoError(t, Entry{Key: strings.Repeat("k", 512), Topic: strings.Repeat("t", 128), Body: make([]byte, 65536), At: MaxMillis}.Check())
	_, err := Limits{MaxPending: -1}.WithDefaults()
	require.ErrorContains(t, err, "Limits.MaxPending is -1, must be 0 (no bound) or more")
	_, err = Limits{MaxDead: -1}.WithDefaults()
	require.ErrorContains(t, err, "Limits.MaxDead is -1")
	_, err = Limits{MaxDeadAge: -1}.WithDefaults()
	require.ErrorContains(t, err, "Limits.MaxDeadAge is -1ns")
	l, err := Limits{}.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, Limits{MaxDead: 10_000}, l)
}

func TestCutErrorCutsBetweenCharacters(t *testing.T) {
	require.Equal(t, "short", CutError("short"))
	require.Equal(t, strings.Repeat("a", MaxError-1), CutError(strings.Repeat("a", MaxError-1)+"é"))
	require.Len(t, CutError(strings.Repeat("\xbf", 2*MaxError)), MaxError-4) // no character at all
	require.Len(t, CutError(strings.Repeat("a", 2*MaxError)), MaxError)
}

func TestNames(t *testing.T) {
	require.Equal(t, "waiting leased dead State(9)", fmt.Sprint(Waiting, Leased, Dead, State(9)))
	require.Equal(t, "created replaced dead letter refused ReceiptKind(0)", fmt.Sprintf("%v %v %v %v", Created, ReplacedDead, Refused, ReceiptKind(0)))
	require.Equal(t, "running moved requeued lost snooze lost", fmt.Sprintf("%v %v %v %v %v %v", Running, Moved, Requeued, ExtendLost, Snooze, EndLost))
	require.NotEqual(t, NewID(), NewID())
	require.Len(t, NewToken("w").String(), 32)
	require.NotEqual(t, NewToken("w"), NewToken("w"))
	require.Equal(t, HashOfWorker("w"), NewToken("w").Worker())
	require.NotEqual(t, HashOfWorker("v"), NewToken("w").Worker())
}

func TestPlansAreChecked(t *testing.T) {
	id, other := NewID(), NewID()
	key := PlanKey("k")
	entry := Entry{Key: key + "1"}
	for want, p := range map[string]PlanSwap{
		"a timer's key is 0 bytes long":                                            {},
		`"k" is not the key of a plan, which has one zero byte, at its end`:        {Key: "k", ID: id},
		`"k\x00k\x00" is not the key of a plan`:                                    {Key: "k\x00k\x00", ID: id},
		`"\x00" is not the key of a plan`:                                          {Key: "\x00", ID: id},
		`PlanSwap.ID of "k\x00" is ` + id.String() + `, must differ from Expected`: {Key: key, ID: id, Expected: id},
		`the plan "k\x00" is 65537 bytes long, must be at most 65536`:              {Key: key, ID: id, Body: make([]byte, 65537)},
		`PlanSwap.Wake of "k\x00" is 3, must be 0 to 2`:                            {Key: key, ID: id, Wake: 3},
		`PlanSwap of "k\x00" has 101 entries, must have at most 100`:               {Key: key, ID: id, Entries: make([]Entry, 101)},
		`"l\x001" is not the key of an occurrence of "k\x00"`:                      {Key: key, ID: id, Entries: []Entry{{Key: "l\x001"}}},
		`the topic of timer "k\x001" is 129 bytes long`:                            {Key: key, ID: id, Entries: []Entry{{Key: key + "1", Topic: strings.Repeat("t", 129)}}},
		`plan "k\x00" is due at -1 ms after 1970`:                                  {Key: key, ID: id, Due: -1},
	} {
		require.ErrorContains(t, p.Check(), want)
	}
	require.NoError(t, PlanSwap{Key: key, ID: id, Expected: other, Entries: []Entry{entry}}.Check())
	require.NoError(t, PlanSwap{Key: key, Expected: other, Wake: 9}.Check(), "nothing counts in a removal")
	require.ErrorContains(t, Entry{Key: key}.Check(), `ends with a zero byte, as only a plan's does`)
	require.ErrorContains(t, Claim{Worker: "w", Max: 1, MaxBytes: 1, Lease: time.Second, MaxAttempts: 1, Plans: 501}.Check(), "Claim.Plans is 501, must be 0 to 500")

	p := PlanSwap{Key: key, ID: id, Entries: []Entry{entry, {Key: key + "2"}}}
	require.Equal(t, 2, p.Added(func(key string) bool { return key == entry.Key }))
	require.Zero(t, PlanSwap{Key: key, Expected: other, Entries: p.Entries}.Added(nil))
	require.Equal(t, "swapped lost refused done dead cancelled", fmt.Sprint(Swapped, SwapLost, SwapRefused, OccurrenceDone, OccurrenceDead, OccurrenceCancelled))
	require.Equal(t, []string{"k", "k", "l"}, []string{ScheduleOf(key), ScheduleOf(entry.Key), ScheduleOf("l")})
	require.Equal(t, []string{"", key, ""}, []string{PlanOf(key), PlanOf(entry.Key), PlanOf("l")})
	require.Equal(t, PlanLane, LaneOfKey(key, "t"))
	require.Equal(t, LaneOf("t"), LaneOfKey(entry.Key, "t"))
}
