// Package tour puts a cluster under load and faults, and checks what comes of it: what was
// acknowledged is seen once, in order and where its producer was told; every long poll is
// answered once, none too early and none too late; and nothing is left at the end.
//
// stops.go has the faults, drive.go the load.
package tour
