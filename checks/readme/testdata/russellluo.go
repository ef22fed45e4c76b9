// Package russellluo holds the side of docs/migrating.md that uses RussellLuo/timingwheel. No
// test compiles it, because no module here requires that one.
package russellluo

import (
	"time"

	"github.com/RussellLuo/timingwheel"
)

// docs/migrating
type everyMinute struct{}

func (everyMinute) Next(t time.Time) time.Time { return t.Add(time.Minute) }

// end

func callsAndJobs(giveUp, refresh func()) bool {
	// docs/migrating
	tw := timingwheel.NewTimingWheel(time.Millisecond, 20)
	tw.Start()
	defer tw.Stop()

	call := tw.AfterFunc(5*time.Second, giveUp)
	stopped := call.Stop()

	job := tw.ScheduleFunc(everyMinute{}, refresh)
	// end
	job.Stop()
	return stopped
}
