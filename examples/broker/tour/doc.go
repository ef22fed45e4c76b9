// Package tour puts a cluster under load and faults, and checks the results. Each acknowledged
// record is seen once, in order and at the offset that its producer was told. Every long poll is
// answered once, neither too early nor too late. Nothing is left at the end.
//
// scenarios.go has the faults, drive.go the load.
package tour
