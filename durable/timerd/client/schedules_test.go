package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

func TestSchedule(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	sent := client.Schedule{
		Key: "re/port", Cron: "0 9 1 * *", Zone: "Asia/Kathmandu", Start: noon, End: noon.AddDate(0, 4, 0), Limit: 2,
		Jitter: 5 * time.Minute, Overlap: client.OverlapBufferOne, Missed: client.MissedAll, CatchUp: 36 * time.Hour, PauseOnDead: true,
		Topic: "reports", Body: []byte{0, 255},
		Callback: client.Callback{URL: "http://example.com/a", Method: "PUT", Headers: map[string]string{"X-A": "b"}, Timeout: 5 * time.Second},
	}
	r, err := f.PutSchedule(ctx, sent)
	require.NoError(t, err)
	require.Equal(t, client.Created, r.Result)
	require.Len(t, r.Next, 2)
	require.Equal(t, "2030-02-01T09:00:00+05:45", r.Next[0].Format(time.RFC3339))
	r, err = f.PutSchedule(ctx, sent)
	require.NoError(t, err)
	require.Equal(t, client.Unchanged, r.Result)

	i, err := f.GetSchedule(ctx, "re/port")
	require.NoError(t, err)
	require.Len(t, i.ID, 32)
	require.Equal(t, client.ScheduleActive, i.State)
	require.True(t, noon.Equal(i.Created))
	require.Len(t, i.Next, 2)
	require.True(t, sent.Start.Equal(i.Start) && sent.End.Equal(i.End))
	i.Start, i.End = sent.Start, sent.End
	require.Equal(t, sent, i.Schedule)

	o, err := f.TriggerSchedule(ctx, "re/port")
	require.NoError(t, err)
	require.True(t, noon.Equal(o.Planned))
	i, err = f.GetSchedule(ctx, "re/port")
	require.NoError(t, err)
	require.Equal(t, []client.Occurrence{o}, i.Last)
	require.Equal(t, uint64(1), i.Counts.Triggered)
	got, err := f.Get(ctx, o.Key)
	require.NoError(t, err)
	require.Equal(t, o.Key, got.Key)
	require.Equal(t, "re/port", got.Schedule)
	require.True(t, noon.Equal(got.Planned))
	require.Equal(t, sent.Callback, got.Callback)
	require.Equal(t, sent.Body, got.Body)
	f.deadLetter(f.claim("re/port"), "no")
	dead := collect(t, f.List(ctx, client.Query{State: client.Dead}))
	require.Len(t, dead, 1)
	purged, err := f.Purge(ctx, dead[0].Key)
	f.is(client.Purged, purged, err)

	require.NoError(t, f.PauseSchedule(ctx, "re/port", "holidays"))
	i, err = f.GetSchedule(ctx, "re/port")
	require.NoError(t, err)
	require.Equal(t, client.SchedulePaused, i.State)
	require.Equal(t, "holidays", i.PauseNote)
	require.True(t, noon.Equal(i.Paused))
	require.NoError(t, f.ResumeSchedule(ctx, "re/port"))

	all := collect(t, f.Schedules(ctx, client.ListOptions{}))
	require.Len(t, all, 1)
	require.Equal(t, "re/port", all[0].Key)
	require.Equal(t, "reports", all[0].Topic)
	require.Equal(t, client.ScheduleActive, all[0].State)
	require.Zero(t, all[0].Paused)

	_, err = f.TriggerSchedule(ctx, "re/port")
	require.NoError(t, err)
	r, err = f.DeleteSchedule(ctx, "re/port", true)
	require.NoError(t, err)
	require.Equal(t, client.ScheduleReceipt{Key: "re/port", Result: client.Deleted, Cancelled: 1}, r)
	r, err = f.DeleteSchedule(ctx, "re/port", false)
	require.NoError(t, err)
	require.Equal(t, client.NotFound, r.Result)
}

func TestScheduleOfPeriods(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	sent := client.Schedule{Key: "beat", Every: 15 * time.Minute, Offset: 3 * time.Minute, Callback: callback}
	_, err := f.PutSchedule(ctx, sent)
	require.NoError(t, err)
	i, err := f.GetSchedule(ctx, "beat")
	require.NoError(t, err)
	require.Equal(t, sent.Every, i.Every)
	require.Equal(t, sent.Offset, i.Offset)
	require.Equal(t, client.OverlapSkip, i.Overlap) // the default
	sent.IfAbsent = true
	r, err := f.PutSchedule(ctx, sent)
	require.NoError(t, err)
	require.Equal(t, client.Exists, r.Result)

	n, err := f.BackfillSchedule(ctx, "beat", noon.Add(-time.Hour), noon)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	_, err = f.BackfillSchedule(ctx, "beat", noon, noon.Add(time.Hour))
	require.ErrorIs(t, err, client.ErrInvalid)
	_, err = f.BackfillSchedule(ctx, "none", noon, noon)
	require.ErrorIs(t, err, client.ErrNotFound)
	_, err = f.TriggerSchedule(ctx, "none")
	require.ErrorIs(t, err, client.ErrNotFound)
	require.ErrorIs(t, f.PauseSchedule(ctx, "none", ""), client.ErrNotFound)
	require.ErrorIs(t, f.ResumeSchedule(ctx, "none"), client.ErrNotFound)
	require.EqualError(t, f.PauseSchedule(ctx, "beat", "\xff"), `client: PauseSchedule.text is "\xff", must be UTF-8`)
	require.EqualError(t, f.PauseSchedule(ctx, "beat", strings.Repeat("a", 257)), "client: POST /schedules/beat/pause: note is 257 bytes long, must be at most 256 bytes long (400 invalid)")
}

func TestPreviewSchedule(t *testing.T) {
	f, ctx := newFixture(t, store.Limits{}, ""), t.Context()
	p, err := f.PreviewSchedule(ctx, client.Schedule{Cron: "* 0 * * *"}, noon, 3)
	require.NoError(t, err)
	require.Len(t, p.Next, 3)
	require.Equal(t, time.Date(2030, 1, 3, 0, 0, 0, 0, time.UTC), p.Next[0])
	require.Contains(t, p.Warning, "60 times")
	p, err = f.PreviewSchedule(ctx, client.Schedule{Every: time.Hour}, time.Time{}, 0)
	require.NoError(t, err)
	require.Len(t, p.Next, 10)
	for _, wrong := range []client.Schedule{{Cron: "x"}, {Cron: "\xff"}, {Every: time.Hour, End: noon.AddDate(10_000, 0, 0)}} {
		_, err = f.PreviewSchedule(ctx, wrong, noon, 3)
		require.ErrorIs(t, err, client.ErrInvalid)
		_, err = f.PutSchedule(ctx, wrong)
		require.ErrorIs(t, err, client.ErrInvalid)
	}
}
