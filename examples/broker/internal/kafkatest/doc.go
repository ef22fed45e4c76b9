// Package kafkatest is what the tests of the broker's packages share: a connection that
// speaks frames, requests, record batches, and frames that are hostile.
package kafkatest
