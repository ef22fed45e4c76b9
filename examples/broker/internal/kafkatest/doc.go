// Package kafkatest is shared by the tests of the broker's packages: a connection that sends
// frames, requests, record batches, and hostile frames.
package kafkatest
