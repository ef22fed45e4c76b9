// Package fault injects faults: a Gate pauses or slows a broker, Links cut connections between
// brokers, and a Dialer breaks its connections.
package fault
