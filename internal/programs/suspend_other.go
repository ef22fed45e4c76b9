//go:build !unix

package programs

import "errors"

const CanSuspend = false

func (p *Process) Suspend() error { return errors.ErrUnsupported }
func (p *Process) Resume() error  { return errors.ErrUnsupported }
