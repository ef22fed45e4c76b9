package cluster

import (
	"fmt"
	"net"

	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
)

// Config configures a cluster. The zero value of a field means its default.
type Config struct {
	Addr        string // host:port of the first broker; the others take the next ports; port 0 picks free ones
	AllowRemote bool   // without it, New refuses an Addr that is not loopback
	Brokers     int

	broker.Config // of each broker
}

// maxBrokers is as many as are useful in one process.
const maxBrokers = 16

// WithDefaults fills in the zero fields and returns an error for values out of range.
func (c Config) WithDefaults() (Config, error) {
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return c, fmt.Errorf("broker: Addr %q: %w", c.Addr, err)
	}
	if !c.AllowRemote && !isLoopback(host) {
		return c, fmt.Errorf("broker: Addr %q is not loopback: there is no authentication; set AllowRemote (-allow-remote) to listen there all the same", c.Addr)
	}
	var b option.Check
	option.Fill(&b, "Brokers", &c.Brokers, 3, 1, maxBrokers)
	if b.Err != nil {
		return c, b.Err
	}
	// A single broker has no broker to replicate to.
	option.Fill(&b, "Meta.Replication", &c.Meta.Replication, int16(min(3, c.Brokers)), 1, int16(c.Brokers))
	option.Fill(&b, "Meta.MinISR", &c.Meta.MinISR, int32(min(2, c.Meta.Replication)), 1, int32(c.Brokers))
	if b.Err != nil {
		return c, b.Err
	}
	c.Config, err = c.Config.WithDefaults()
	return c, err
}

// isLoopback accepts only literal loopback addresses and "localhost": an empty host means every
// interface, and other names may resolve to any address.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
