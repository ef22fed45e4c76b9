package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/durable/store"
)

// errorClass is the consequence of an error for the request.
type errorClass struct {
	received  bool         // it may have been executed
	retriable bool         // sending it again may help
	reload    bool         // the slots may have moved
	to        target       // where to
	present   store.Millis // the server's time if the deadline has passed; otherwise 0
}

// unsent is an error from before a request was sent.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

func classify(err error) errorClass {
	switch c := code(err); c {
	case "":
	case "MOVED", "ASK":
		class := errorClass{retriable: true, reload: true}
		if words := strings.Fields(err.Error()); len(words) == 3 && !strings.HasPrefix(words[2], ":") {
			class.to = target{addr: words[2], asking: c == "ASK"}
		}
		return class
	case "EXPIRED": // or the server's clock is ahead of the time that it last sent
		class := errorClass{retriable: true}
		_, _ = fmt.Sscanf(err.Error(), "EXPIRED %d", &class.present)
		return class
	case "READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING":
		return errorClass{retriable: true, reload: true}
	case "TRYAGAIN", "BUSY", "NOREPLICAS", "NOSCRIPT":
		return errorClass{retriable: true}
	default:
		// MAXCLIENTS has no code of its own.
		return errorClass{received: scriptFailed(c, err), retriable: strings.Contains(err.Error(), "max number of clients")}
	}
	var before *unsent
	var op *net.OpError
	switch {
	case errors.Is(err, redis.ErrClosed):
		return errorClass{}
	case errors.As(err, &before), errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &op) && op.Op == "dial":
		return errorClass{retriable: true, reload: true}
	}
	return errorClass{received: true, retriable: true, reload: true}
}

// scriptFailed reports whether an error ended a script, which may have written before: for example
// because the user lacks the right to one of its commands. A script that returns an error itself,
// such as SHARDS, does so before it writes.
func scriptFailed(code string, err error) bool {
	switch code {
	case "OOM", "MISCONF": // refuse the first write, or none
		return false
	}
	return strings.Contains(err.Error(), "user_script")
}

// In Redis 6.2 the error of a command that a script calls is inside the script's error.
var inScript = regexp.MustCompile(`@user_script: ?\d+: -?([A-Z]+) `)

// code returns the first word of an error that the server sent; empty for other errors.
func code(err error) string {
	var e redis.Error
	if err == nil || !errors.As(err, &e) {
		return ""
	}
	text := e.Error()
	if strings.HasPrefix(text, "ERR ") {
		if m := inScript.FindStringSubmatch(text); m != nil {
			return m[1]
		}
	}
	word, _, _ := strings.Cut(text, " ")
	return word
}

// explained wraps an error of the server with its meaning for the store.
func explained(err error) error {
	switch code(err) {
	case "OOM":
		if errors.Is(err, store.ErrUnsure) { // an earlier attempt was not answered
			return fmt.Errorf("%w: the server is at maxmemory: %w", store.ErrFull, err)
		}
		return fmt.Errorf("%w: the server is at maxmemory", store.ErrFull)
	case "SHARDS":
		return fmt.Errorf("%w: %w", store.ErrShards, err)
	}
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("%w: %w", store.ErrClosed, err)
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		strings.HasPrefix(err.Error(), "durable: ") || strings.HasPrefix(err.Error(), "redisstore: ") {
		return err
	}
	return fmt.Errorf("redisstore: %w", err)
}
