package wire

// Recurrence determines the planned times of a schedule.
type Recurrence struct {
	Cron   string `json:"cron,omitempty"` // with Zone
	Zone   string `json:"zone,omitempty"`
	Every  string `json:"every,omitempty"` // instead of Cron, with Offset; such as 15m
	Offset string `json:"offset,omitempty"`
	Start  string `json:"start,omitempty"` // RFC 3339
	End    string `json:"end,omitempty"`
	Limit  int64  `json:"limit,omitempty"`
}

// Policy says how a schedule treats its planned times.
type Policy struct {
	Jitter      string `json:"jitter,omitempty"`
	Overlap     string `json:"overlap,omitempty"`
	Missed      string `json:"missed,omitempty"`
	CatchUp     string `json:"catch_up,omitempty"`
	PauseOnDead bool   `json:"pause_on_dead,omitempty"`
}

// Schedule is a request to put a schedule.
type Schedule struct {
	Recurrence
	Policy
	Payload
}

// Preview is a request for planned times.
type Preview struct {
	Recurrence
	From  string `json:"from,omitempty"` // RFC 3339; default: the present
	Count int64  `json:"count,omitempty"`
}

// Note is the request to pause a schedule.
type Note struct {
	Note string `json:"note,omitempty"`
}

// Interval is the request for a backfill.
type Interval struct {
	From string `json:"from"` // RFC 3339
	To   string `json:"to"`
}

// ScheduleResult is the answer to a change of one schedule.
type ScheduleResult struct {
	Key       string   `json:"key"`
	Result    string   `json:"result"`
	Next      []string `json:"next,omitzero"` // of PUT
	Warning   string   `json:"warning,omitempty"`
	Cancelled *int     `json:"cancelled,omitempty"` // of DELETE: number of occurrences
	Path      string   `json:"path,omitempty"`      // of a trigger: of the occurrence's timer
	Planned   string   `json:"planned,omitempty"`
	Count     *int     `json:"count,omitempty"` // of a backfill: number of occurrences
}

// Planned is the answer to a preview.
type Planned struct {
	Next    []string `json:"next"`
	Warning string   `json:"warning,omitempty"`
}

// SchedulePage is a page of the list of schedules.
type SchedulePage struct {
	Schedules []ScheduleInfo `json:"schedules"`
	Next      string         `json:"next,omitempty"` // after of the next page, if there may be one
}

// ScheduleInfo is a schedule in replies. All times are in the schedule's zone.
type ScheduleInfo struct {
	Key       string `json:"key"`
	Path      string `json:"path"` // has the key's exact bytes
	ID        string `json:"id,omitempty"`
	State     string `json:"state"`             // active, paused, ended (no planned time is left) or problem
	Problem   string `json:"problem,omitempty"` // why no worker can create occurrences
	Created   string `json:"created,omitempty"`
	Paused    string `json:"paused,omitempty"` // since when
	PauseNote string `json:"pause_note,omitempty"`
	Recurrence
	Policy
	Topic   string       `json:"topic,omitempty"`
	Next    []string     `json:"next"`
	Overdue string       `json:"overdue,omitempty"` // planned time that no worker has processed
	Waiting string       `json:"waiting,omitempty"` // planned time that waits for the end of an occurrence
	Counts  Counts       `json:"counts"`
	Last    []Occurrence `json:"last,omitzero"` // this and all further fields are not in lists
	Content
}

// Counts has the fields of durable.ScheduleCounts.
type Counts struct {
	Created        uint64 `json:"created"`
	Triggered      uint64 `json:"triggered"`
	Backfilled     uint64 `json:"backfilled"`
	SkippedOverlap uint64 `json:"skipped_overlap"`
	SkippedMissed  uint64 `json:"skipped_missed"`
	SkippedUpdated uint64 `json:"skipped_updated"`
	Done           uint64 `json:"done"`
	Dead           uint64 `json:"dead"`
	Cancelled      uint64 `json:"cancelled"`
}

// Occurrence is one run of a schedule.
type Occurrence struct {
	Path      string `json:"path"` // of its timer
	Planned   string `json:"planned"`
	Requested string `json:"requested,omitempty"` // trigger or backfill
	State     string `json:"state"`
	Begun     string `json:"begun,omitempty"` // its last attempt
	Ended     string `json:"ended,omitempty"`
	Attempts  int    `json:"attempts"`
	Error     string `json:"error,omitempty"` // of its last failed attempt
}
