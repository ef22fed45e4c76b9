package longpoll

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// requestedWait returns how long a poll must wait; preferred reports whether the Prefer header
// set it. An invalid Prefer header is ignored, as the RFC requires; an error concerns the query.
func (p *Polls) requestedWait(r *http.Request) (wait time.Duration, preferred bool, err error) {
	wait = p.options.Wait
	if seconds, ok := preferredWait(r.Header.Values("Prefer")); ok {
		wait, preferred = clamp(float64(seconds)*float64(time.Second)), true
	}
	if r.URL.RawQuery != "" {
		if text := r.URL.Query().Get(p.options.Query); text != "" {
			if wait, err = duration(text); err != nil {
				return 0, false, fmt.Errorf("%s %w", p.options.Query, err)
			}
			preferred = false
		}
	}
	return min(wait, p.options.MaxWait), preferred, nil
}

// duration parses seconds, or a duration of time.ParseDuration.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if seconds, e := strconv.ParseFloat(text, 64); e == nil && !math.IsNaN(seconds) {
		d, err = clamp(seconds*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		return 0, errors.New("is " + strconv.Quote(text[:min(len(text), 32)]) + `, must be seconds from 0 on, or a duration such as "500ms"`)
	}
	return d, nil
}

// clamp converts nanoseconds to a duration, at most the longest one.
func clamp(nanoseconds float64) time.Duration {
	if nanoseconds >= float64(math.MaxInt64) {
		return math.MaxInt64
	}
	return time.Duration(nanoseconds)
}
