package tour

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
	slowReply = 200 * time.Millisecond
	hangReply = 10 * time.Second
	flakyFor  = 2 // attempts
)

// receiverConfig is what a receiver process is told.
type receiverConfig struct {
	Listen string
	Ledger string
}

// receiver takes the call-backs. What it answers it writes down first, so that a
// call-back that was answered is known even if the process is killed.
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
	timer, how, ok := parseBody(body)
	attempt, err2 := strconv.Atoi(r.Header.Get("Limbo-Attempt"))
	if err != nil || err2 != nil || !ok {
		http.Error(w, "no call-back of the tour", http.StatusBadRequest)
		return
	}
	status := http.StatusOK
	switch how {
	case modeSlow:
		time.Sleep(slowReply)
	case modeFlaky:
		if attempt <= flakyFor {
			status = http.StatusServiceUnavailable
		}
	case modeHang:
		if attempt == 1 {
			select {
			case <-r.Context().Done():
			case <-time.After(hangReply):
			}
			return
		}
	case modeFatal:
		status = http.StatusNotFound
	case modePoison:
		status = http.StatusInternalServerError
	}
	rc.ledger.write("r", micros(), timer, r.Header.Get(webhook.HeaderID), attempt, status)
	w.WriteHeader(status)
}

// parseBody reads what scheduler.timer wrote.
func parseBody(b []byte) (timer int, m mode, ok bool) {
	n, err := fmt.Sscan(string(b), &timer, (*string)(&m))
	return timer, m, err == nil && n == 2
}
