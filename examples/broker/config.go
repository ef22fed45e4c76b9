package main

import (
	"fmt"
	"log/slog"
	"net"
	"time"
)

// config holds every bound of a broker. A broker on a port is read by
// strangers, so nothing that a client can make grow is without a number here.
// The zero value is not usable: start from defaultConfig.
type config struct {
	addr        string // host:port to listen on
	allowRemote bool   // without it a non-loopback addr is refused

	maxConnections int // accepted and open at once; further ones wait in the kernel's backlog
	maxInFlight    int // requests read and not yet answered, per connection; then reading stops
	maxQueuedBytes int // bytes of those requests, per connection; one request is always let through

	maxFrame       int   // bytes of one produce request
	maxSmallFrame  int   // bytes of any other request
	maxArrays      int   // elements of all arrays of one request, counted before kmsg allocates any
	maxInboundSum  int64 // bytes of all large frames being read or handled, over all connections
	maxQueuedSum   int64 // bytes of requests that wait for their answers, over all connections; see queuedSize
	maxOutboundSum int64 // bytes of fetch answers being written, over all connections (see fetchRoom)

	frameTimeout time.Duration // from a frame's first byte to its last
	idleTimeout  time.Duration // with nothing asked and nothing pending
	writeTimeout time.Duration // for one answer to leave
	lingerClose  time.Duration // how long a shutdown waits for a client to see its last answers

	autoCreate        bool  // a Metadata request may create the topics it names
	defaultPartitions int32 // of topics created without a count
	maxTopics         int
	maxPartitions     int // over all topics

	maxBatch       int   // bytes of one record batch
	maxFetch       int   // bytes of record batches in one fetch answer (its first batch may be larger)
	retentionBytes int64 // kept per partition
	maxLogSum      int64 // kept over all partitions

	maxProducers int           // idempotent producers remembered per partition
	producerIdle time.Duration // after which a producer's sequence is forgotten

	maxParked  int // fetches parked at once, over all connections
	maxWatched int // (fetch, partition) pairs parked at once

	brokers           int           // of the cluster
	replication       int16         // replicas of topics created without a number, and of the offsets topic
	minISR            int32         // in-sync replicas that acks=all asks for, of topics created without a number
	replicaLag        time.Duration // a follower that is behind for longer is not in sync
	brokerSession     time.Duration // a broker that is silent for longer is not alive
	maxUncommitted    int64         // bytes of a partition that not all in-sync replicas have; no more is taken then
	offsetsPartitions int32
	groups            groupConfig

	tick   time.Duration // of the purgatories' timing wheels
	logger *slog.Logger

	expired func(*fetch) // if set, called with each consumer's fetch that has expired
}

func defaultConfig() config {
	return config{
		addr:              "127.0.0.1:0",
		maxConnections:    1024,
		maxInFlight:       64,
		maxQueuedBytes:    256 << 10,
		maxFrame:          16 << 20,
		maxSmallFrame:     256 << 10,
		maxArrays:         16 << 10,
		maxInboundSum:     256 << 20,
		maxOutboundSum:    256 << 20,
		maxQueuedSum:      32 << 20,
		frameTimeout:      10 * time.Second,
		idleTimeout:       10 * time.Minute,
		writeTimeout:      20 * time.Second,
		lingerClose:       250 * time.Millisecond,
		autoCreate:        true,
		defaultPartitions: 1,
		maxTopics:         1024,
		maxPartitions:     4096,
		maxBatch:          8 << 20,
		maxFetch:          8 << 20,
		retentionBytes:    64 << 20,
		maxLogSum:         1 << 30,
		maxProducers:      256,
		producerIdle:      time.Hour,
		maxParked:         100_000,
		maxWatched:        1_000_000,
		brokers:           3,
		replication:       3,
		minISR:            2,
		replicaLag:        time.Second,
		brokerSession:     2 * time.Second,
		maxUncommitted:    16 << 20,
		offsetsPartitions: 4,
		groups:            defaultGroupConfig(),
		tick:              time.Millisecond,
		logger:            slog.Default(),
	}
}

// validate names the first field that cannot work.
func (c *config) validate() error {
	host, _, err := net.SplitHostPort(c.addr)
	if err != nil {
		return fmt.Errorf("broker: addr %q: %w", c.addr, err)
	}
	if !c.allowRemote && !isLoopback(host) {
		return fmt.Errorf("broker: addr %q is not loopback: this example has no authentication; say -allow-remote to listen there all the same", c.addr)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"max connections", int64(c.maxConnections)},
		{"max in flight", int64(c.maxInFlight)},
		{"max queued bytes", int64(c.maxQueuedBytes)},
		{"max frame", int64(c.maxFrame)},
		{"max small frame", int64(c.maxSmallFrame)},
		{"max arrays", int64(c.maxArrays)},
		{"max inbound sum", c.maxInboundSum},
		{"max outbound sum", c.maxOutboundSum},
		{"max queued sum", c.maxQueuedSum},
		{"frame timeout", int64(c.frameTimeout)},
		{"idle timeout", int64(c.idleTimeout)},
		{"write timeout", int64(c.writeTimeout)},
		{"default partitions", int64(c.defaultPartitions)},
		{"max topics", int64(c.maxTopics)},
		{"max partitions", int64(c.maxPartitions)},
		{"max batch", int64(c.maxBatch)},
		{"max fetch", int64(c.maxFetch)},
		{"retention bytes", c.retentionBytes},
		{"max log sum", c.maxLogSum},
		{"max producers", int64(c.maxProducers)},
		{"producer idle", int64(c.producerIdle)},
		{"max parked", int64(c.maxParked)},
		{"max watched", int64(c.maxWatched)},
		{"brokers", int64(c.brokers)},
		{"replication", int64(c.replication)},
		{"min in-sync replicas", int64(c.minISR)},
		{"replica lag", int64(c.replicaLag)},
		{"broker session", int64(c.brokerSession)},
		{"max uncommitted", c.maxUncommitted},
		{"offsets partitions", int64(c.offsetsPartitions)},
		{"tick", int64(c.tick)},
	} {
		if f.value <= 0 {
			return fmt.Errorf("broker: %s must be positive, not %d", f.name, f.value)
		}
	}
	if c.brokers > maxBrokers {
		return fmt.Errorf("broker: brokers must be at most %d, not %d", maxBrokers, c.brokers)
	}
	if int(c.replication) > c.brokers {
		return fmt.Errorf("broker: replication %d is more than the %d brokers", c.replication, c.brokers)
	}
	if int64(c.maxFrame) > c.maxInboundSum {
		return fmt.Errorf("broker: max frame %d is more than all frames together may be (%d)", c.maxFrame, c.maxInboundSum)
	}
	return c.groups.validate()
}

// maxBrokers is what one process has any use for.
const maxBrokers = 16

// isLoopback takes only literal loopback addresses and "localhost": an empty
// host means every interface, and other names may resolve to anything.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
