package console

import (
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
)

func TestSchedules(t *testing.T) {
	r := newRig(t, Options{})
	put := object{"key": key64("report"), "cron": "30 2 * * *", "zone": "Europe/Berlin", "topic": "reports", "body_base64": base64.StdEncoding.EncodeToString([]byte("a\xff"))}
	require.Equal(t, "created", call[scheduleReply](r, 200, "/api/schedules/put", put).Result)
	require.Equal(t, "unchanged", call[scheduleReply](r, 200, "/api/schedules/put", put).Result)
	r.refused(409, "/api/schedules/put", object{"key": key64("report"), "every_ms": 60000, "if_absent": true}, "the key has a schedule already")
	require.Equal(t, "created", call[scheduleReply](r, 200, "/api/schedules/put", object{"key": key64("poll"), "every_ms": 60000}).Result)

	page := call[listing[schedule]](r, 200, "/api/schedules?limit=1", nil)
	require.Equal(t, "poll", page.Items[0].Text)
	page = call[listing[schedule]](r, 200, "/api/schedules?limit=1&after="+page.Next, nil)
	require.Equal(t, "report", page.Items[0].Text)
	require.Empty(t, page.Next)
	require.Len(t, page.Items[0].Next, 10)

	// An edit keeps a body that the page cannot show.
	edit := object{"key": key64("report"), "cron": "30 3 * * *", "zone": "Europe/Berlin", "topic": "reports", "keep": true}
	require.Equal(t, "replaced", call[scheduleReply](r, 200, "/api/schedules/put", edit).Result)
	got := call[schedule](r, 200, "/api/schedule?key="+key64("report"), nil)
	require.Equal(t, "30 3 * * *", got.Cron)
	require.Equal(t, base64.StdEncoding.EncodeToString([]byte("a\xff")), got.Body.Base64)
	r.refused(404, "/api/schedules/put", object{"key": key64("none"), "every_ms": 60000, "keep": true}, "no timer or schedule")

	change := func(action string, more object) scheduleReply {
		t.Helper()
		body := object{"key": key64("report")}
		for name, value := range more {
			body[name] = value
		}
		return call[scheduleReply](r, 200, "/api/schedules/"+action, body)
	}
	require.Equal(t, "paused", change("pause", object{"note": "the printer is broken"}).Result)
	got = call[schedule](r, 200, "/api/schedule?key="+key64("report"), nil)
	require.Equal(t, "the printer is broken", got.PauseNote)
	require.False(t, got.Paused.IsZero())
	require.Equal(t, "resumed", change("resume", nil).Result)
	triggered := change("trigger", nil)
	require.NotEmpty(t, triggered.Key)
	to := time.Now().UTC().Truncate(24 * time.Hour)
	require.Equal(t, 3, change("backfill", object{"from": to.Add(-72 * time.Hour), "to": to}).Count)
	r.refused(400, "/api/schedules/backfill", object{"key": key64("report"), "from": to, "to": to.Add(-time.Hour)}, "must not be before its start")

	occurrences := call[listing[timer]](r, 200, "/api/timers?state=waiting&schedule="+key64("report"), nil).Items
	require.Len(t, occurrences, 4)
	require.Equal(t, "report", occurrences[0].ScheduleText)
	got = call[schedule](r, 200, "/api/schedule?key="+key64("report"), nil)
	require.Len(t, got.Last, 4)
	require.Equal(t, "waiting", got.Last[0].State)

	require.Equal(t, scheduleReply{Result: "deleted", Count: 4}, change("delete", object{"cancel": true}))
	r.refused(404, "/api/schedule?key="+key64("report"), nil, "no timer or schedule")
	call[scheduleReply](r, 200, "/api/schedules/trigger", object{"key": key64("poll")})
	require.Equal(t, scheduleReply{Result: "deleted"}, call[scheduleReply](r, 200, "/api/schedules/delete", object{"key": key64("poll")}))
	require.Equal(t, 1, r.stats().Waiting, "its occurrence is kept")
	require.Contains(t, r.log.String(), `action="delete schedule" key=report count=4`)
}

func TestPreview(t *testing.T) {
	r := newRig(t, Options{ReadOnly: true})
	p := call[previewReply](r, 200, "/api/schedules/preview", object{"cron": "* 0 * * *", "zone": "America/New_York"})
	require.Len(t, p.Next, 10)
	require.NotEmpty(t, p.Warning)
	_, offset := p.Next[0].Zone()
	require.Contains(t, []int{-4 * 3600, -5 * 3600}, offset, "in the schedule's zone")
	for _, c := range []struct {
		put object
		why string
	}{
		{object{}, "Cron is"},
		{object{"cron": "61 * * * *"}, "61"},
		{object{"cron": "@daily", "zone": "Mars/Base"}, `Zone is "Mars/Base", must be an IANA name`},
		{object{"every_ms": -1}, "every_ms is -1, must be 0 to 315360000000"},
		{object{"every_ms": 5}, "Every.Period is 5ms"},
		{object{"cron": "@daily", "overlap": "x"}, `overlap is "x", must be one of`},
		{object{"cron": "@daily", "missed": "x"}, `missed is "x", must be one of`},
		{object{"cron": "@daily", "body_base64": "!"}, `body_base64 is "!", must be base64`},
		{object{"cron": "@daily", "colour": 1}, "unknown field"},
	} {
		r.refused(400, "/api/schedules/preview", c.put, c.why)
	}
}

func TestBadScheduleChanges(t *testing.T) {
	r := newRig(t, Options{CheckBody: func(topic string, body []byte) error {
		if topic == "calls" && len(body) == 0 {
			return errors.New("it has 0 bytes, must have 1")
		}
		return nil
	}})
	r.refused(404, "/api/schedules/pause", object{"key": key64("none")}, "no timer or schedule")
	r.refused(400, "/api/schedules/pause", object{"key": key64("none"), "note": repeat("x", 257)}, "note is 257 bytes long, must be at most 256")
	r.refused(400, "/api/schedules/pause", object{"key": ""}, "the schedule's key is 0 bytes long, must be 1 to 480")
	r.refused(400, "/api/schedules/explode", object{"key": key64("a")}, `the action is "explode", must be put, pause`)
	r.refused(400, "/api/schedules/put", object{"key": key64("a"), "cron": "@daily", "topic": "calls"}, "the body is refused: it has 0 bytes, must have 1")
	r.refused(400, "/api/schedules/put", object{"key": key64("a\x00b"), "cron": "@daily"}, "byte 1 of the schedule's key")
	r.refused(400, "/api/schedules/put", object{"key": key64("a"), "cron": "@daily", "jitter_ms": 1 << 30}, "Jitter is")
}

// A schedule whose key is not UTF-8 can be read and changed.
func TestScheduleOfAnyKey(t *testing.T) {
	r := newRig(t, Options{})
	_, _, err := r.timers.PutSchedule(background, durable.Schedule{Key: "\xff", Every: time.Hour, Topic: "\xfe"})
	require.NoError(t, err)
	got := call[schedule](r, 200, "/api/schedule?key="+key64("\xff"), nil)
	require.Equal(t, []string{`\xff`, `\xfe`}, []string{got.Text, got.Topic})
	call[scheduleReply](r, 200, "/api/schedules/put", object{"key": key64("\xff"), "every_ms": 1000, "topic": `\xfe`, "keep": true})
	info, err := r.timers.GetSchedule(background, "\xff")
	require.NoError(t, err)
	require.Equal(t, "\xfe", info.Topic)
}
