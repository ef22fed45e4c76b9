//go:build !unix

package main

import (
	"errors"
	"os"
	"syscall"
)

const canPause = false

func suspend(*os.Process) error { return errors.ErrUnsupported }
func resume(*os.Process) error  { return errors.ErrUnsupported }

func childAttributes() *syscall.SysProcAttr { return nil }
