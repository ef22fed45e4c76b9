//go:build !linux

package main

import (
	"errors"
	"time"
)

func processCPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// pause sleeps for d.
func pause(d time.Duration) { time.Sleep(d) }
