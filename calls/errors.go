package calls

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-782fa212/limbo/internal/sentinel"
)

var (
	// ErrExpired is the error of a call whose timeout has passed. It matches
	// [context.DeadlineExceeded].
	ErrExpired = fmt.Errorf("calls: the call's timeout has passed: %w", context.DeadlineExceeded)

	// ErrDuplicate is returned for a call whose id is in use by a pending call of the same
	// group. The pending call is not affected.
	ErrDuplicate = errors.New("calls: a call with this id is already pending")

	// ErrFull is returned for a call beyond Options.MaxPending.
	ErrFull = sentinel.Full("calls: MaxPending calls are already pending")

	// ErrClosed is the error of calls that end because the table was closed, or their group
	// without another error, and of later calls.
	ErrClosed = sentinel.Closed("calls: closed")
)
