//go:build !unix

package programs

import "errors"

// CanSuspend reports whether the system can suspend programs.
const CanSuspend = false

// Suspend is not supported.
func (p *Process) Suspend() error { return errors.ErrUnsupported }

// Resume is not supported.
func (p *Process) Resume() error { return errors.ErrUnsupported }
