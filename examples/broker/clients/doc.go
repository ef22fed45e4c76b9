// Package clients has no code: its tests run Kafka clients that share no code with franz-go, each
// in its own process, against a cluster. docs/clients.md lists the features that each client can
// use here.
package clients
