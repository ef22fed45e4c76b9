// Package tour puts a cluster under load and faults, and checks the results: each acknowledged
// record is seen once, in order and at the offset that its producer was told; every long poll is
// answered once, neither too early nor too late; and nothing is left at the end.
//
// scenarios.go has the faults, drive.go the load.
package tour
