package planning

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

func TestKeys(t *testing.T) {
	for text, o := range map[string]Occurrence{
		"s @ 1970-01-01T00:00:00.001Z":           {1, ByPlan, 0},
		"s @ 2262-04-11T23:47:16.854Z (trigger)": {9223372036854, ByTrigger, 1},
		"s @ 1970-01-01T00:00:00Z (backfill)":    {0, ByBackfill, 1000},
	} {
		key := o.Key("s\x00")
		schedule, got, ok := ParseKey(key)
		require.Equal(t, []any{"s", o, true}, []any{schedule, got, ok})
		require.Equal(t, "s\x00", store.PlanOf(key))
		require.Equal(t, text, KeyText(key))
	}
	for _, key := range []string{"", "k", "k\x00", "k\x00123", "k\x00-123456789012", "k\x000000000000001x1", "k\x000000000000001t"} {
		schedule, o, ok := ParseKey(key)
		require.False(t, ok, "%q", key)
		require.Equal(t, []any{"", Occurrence{}}, []any{schedule, o}, "%q", key)
		require.Equal(t, key, KeyText(key))
	}
	require.Less(t, Occurrence{Planned: 9}.Key("k\x00"), Occurrence{Planned: 10}.Key("k\x00"))
}

// S2: an occurrence's ID is the same everywhere, and that of no other occurrence.
func TestIDs(t *testing.T) {
	one, other := store.ID{1}, store.ID{2}
	ids := map[store.ID]bool{}
	for _, schedule := range []store.ID{one, other} {
		for _, o := range []Occurrence{{Planned: 1}, {Planned: 2}, {1, ByTrigger, 1}, {1, ByTrigger, 2}, {1, ByBackfill, 1}} {
			ids[o.ID(schedule)] = true
			require.Equal(t, o.ID(schedule), o.ID(schedule))
		}
	}
	require.Len(t, ids, 10)
	require.Equal(t, "aba4fe031d17e4809337113df0ac9c2f", Occurrence{Planned: 1}.ID(one).String())
}
