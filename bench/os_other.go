//go:build !linux

package main

import (
	"errors"
	"os/exec"
	"time"
)

// endWithParent does nothing here: a server outlives this process if this process is killed.
func endWithParent(*exec.Cmd) {}

func processCPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// pause sleeps for d.
func pause(d time.Duration) { time.Sleep(d) }
