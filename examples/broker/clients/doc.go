// Package clients has no code: its tests drive a cluster with Kafka clients that share
// nothing with franz-go, each a process of its own. docs/clients.md has what each of them
// can do here.
package clients
