package main

import (
	"slices"
	"strconv"
	"time"
)

// The control is not a rival: it runs each workload's loop with timers that do nothing, through
// the same interface. It measures the cost of the loop: the random number, the clock, the call.
// Its results are reported next to those of the rivals, subtracted from none of them, and
// omitted from the JSON lines.
const controlName = "control"

var controlRival = rival{
	name:      controlName,
	setup:     "each workload's own loop, with timers that do nothing",
	workloads: append(slices.Clone(timerWorkloads), "W9", "W12"),
	bytes:     8,
	run: func(j Job) (Result, error) {
		switch j.Workload {
		case "W9":
			return openLoad(j, noRequests{})
		case "W12":
			return longPoll(j, "relay", strconv.Itoa(j.Params["parked"]), parkAtRelay)
		}
		return inProcess(openControl)(j)
	},
}

type controlTimers struct{ started uint64 }

func openControl(func(uint64)) (Timers[uint64], error) { return &controlTimers{}, nil }

func (c *controlTimers) Start(time.Duration) uint64                     { return c.started }
func (c *controlTimers) StartID(id uint64, _ time.Duration) uint64      { return id }
func (c *controlTimers) Stop(uint64) bool                               { return true }
func (c *controlTimers) Reset(h uint64, _ time.Duration) (uint64, bool) { return h, true }
func (c *controlTimers) Close()                                         {}
