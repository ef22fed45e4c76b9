// Package fault makes faults on purpose: a Gate holds a broker up, Links between brokers
// are cut, a Dialer's connections break.
package fault
