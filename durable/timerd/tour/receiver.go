package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-782fa212/limbo/durable/webhook"
)

const (
	slowReply     = 200 * time.Millisecond
	hangReply     = 10 * time.Second
	flakyAttempts = 2 // attempts
)

// receiverConfig is the configuration of a receiver process.
type receiverConfig struct {
	Listen string
	Ledger string
}

// receiver answers the callbacks. It records each answer before it sends it, so that an answered
// callback is known even if the process is killed.
type receiver struct{ ledger *ledger }

func runReceiver(ctx context.Context, c receiverConfig) error {
	l, err := openLedger(c.Ledger)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &receiver{l}, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	e, m, ok := parseBody(body)
	planned, err3 := plannedTime(r)
	attempt, err2 := strconv.Atoi(r.Header.Get("Limbo-Attempt"))
	if err != nil || err2 != nil || err3 != nil || !ok || (planned != 0) != (e.Schedule != 0) {
		http.Error(w, "no callback of the tour", http.StatusBadRequest)
		return
	}
	status := http.StatusOK
	switch m {
	case modeSlow:
		time.Sleep(slowReply)
	case modeFlaky:
		if attempt <= flakyAttempts {
			status = http.StatusServiceUnavailable
		}
	case modeHang, modeTrickle, modeInform:
		if attempt == 1 && planned/1000%5 == 0 { // rarely: a backlog would take long
			replyEndlessly(w, m)
			return
		}
	case modeBusy:
		if attempt == 1 && planned/1000%3 == 0 {
			status = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", "1")
		}
	case modeUpgrade:
		status = http.StatusSwitchingProtocols
	case modeFatal:
		status = http.StatusNotFound
	case modePoison:
		status = http.StatusInternalServerError
	}
	e.Kind, e.At, e.Planned = eventReplies, micros(), planned
	e.ID, e.Attempt, e.Status = r.Header.Get(webhook.HeaderID), attempt, status
	rc.ledger.write(e)
	if m == modeUpgrade || m == modeEndless {
		replyEndlessly(w, m)
		return
	}
	w.WriteHeader(status)
}

// endlessReplies has the parts of the answers that do not end: the beginning, and the part that
// repeats.
var endlessReplies = map[mode][2]string{
	modeHang:    {},
	modeTrickle: {"HTTP/1.1 200 OK\r\nX-Trickle: ", "x"},
	modeInform:  {"", "HTTP/1.1 103 Early Hints\r\n\r\n"},
	modeUpgrade: {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tour\r\n\r\n", ""},
	modeEndless: {"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", "x"},
}

// replyEndlessly answers until the caller disconnects, or until long after it should have.
func replyEndlessly(w http.ResponseWriter, m mode) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	disconnected := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, c)
		close(disconnected)
	}()
	_, err = io.WriteString(c, endlessReplies[m][0])
	for end := time.After(hangReply); err == nil; {
		select {
		case <-time.After(10 * time.Millisecond):
			_, err = io.WriteString(c, endlessReplies[m][1])
		case <-disconnected:
			return
		case <-end:
			return
		}
	}
}

// parseBody parses a body that scheduler.timerOf or scheduler.scheduleOf wrote, into
// an event with the number.
func parseBody(b []byte) (e event, m mode, ok bool) {
	var subject string
	var number int
	n, err := fmt.Sscan(string(b), &subject, &number, (*string)(&m))
	switch subject {
	case subjectTimer:
		e.Timer = number
	case subjectSchedule:
		e.Schedule = number
	default:
		return e, m, false
	}
	return e, m, err == nil && n == 3
}

// plannedTime returns the planned time of an occurrence, in ms, or 0 for the callback of any other
// timer.
func plannedTime(r *http.Request) (int64, error) {
	text := r.Header.Get("Limbo-Planned")
	if text == "" {
		return 0, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	return at.UnixMilli(), err
}
