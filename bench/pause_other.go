//go:build !linux

package main

import "time"

// pause sleeps for d.
func pause(d time.Duration) { time.Sleep(d) }
