package main

// The rival "scheduler" is limbo's timingwheel.Scheduler: functions instead of
// values, AfterFunc's shape. It comes with that type; until then it is a gap.
// To add it, write here what impl_stdlib.go has, with
//
//	var schedulerRival = rival{
//		name: "scheduler", setup: "limbo's Scheduler, zero Options: tick 1 ms",
//		does: timerWorkloads, bytes: 80, run: inProcess(openScheduler),
//	}
//
// where Start passes one function made when it was opened, StartID a closure
// over id, and Reset is the handle's; and name it in rivals.go.
