//go:build !linux

package alarm

import "time"

// descriptor is a timerfd on Linux.
type descriptor struct{}

func open() *descriptor               { return nil }
func (*descriptor) close()            {}
func (*descriptor) set(time.Duration) {}
func (*descriptor) sleep()            {}
func (*descriptor) interrupt()        {}
