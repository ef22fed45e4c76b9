package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/internal/programs"
)

// redisServer is the redis-server or valkey-server on PATH. It writes each change to its log before
// it answers, so that a kill loses no answered change.
func redisServer(dir, name, address string, more ...string) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if path, err = exec.LookPath("valkey-server"); err != nil {
			return nil, fmt.Errorf("timerd: -store redis and cluster need redis-server on PATH (Debian's package redis-server): %w", err)
		}
	}
	data := filepath.Join(dir, name)
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	more = append(more, "--appendonly", "yes", "--appendfsync", "always")
	return &process{name: name, log: filepath.Join(dir, name+".log"), command: func() *exec.Cmd {
		return programs.Redis(path, address, data, more...)
	}}, nil
}

// clusterNode is a master of a Redis Cluster that announces another address to clients. It has no
// replica, which could lack answered changes. While it is down, only its slots are down.
func clusterNode(dir, name, address, clientsCome string) (*process, error) {
	host, port, err := net.SplitHostPort(clientsCome)
	if err != nil {
		return nil, err
	}
	_, own, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	bus, err := strconv.Atoi(own)
	if err != nil {
		return nil, err
	}
	return redisServer(dir, name, address, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no",
		"--cluster-announce-ip", host, "--cluster-announce-port", port, "--cluster-announce-bus-port", strconv.Itoa(bus+busAbove))
}

const (
	slots    = 16384
	busAbove = 10_000 // offset of the port on which a node listens for other nodes
)

// joinCluster makes one Cluster of running servers, with equal shares of the slots, and waits until
// all of them know it.
func joinCluster(ctx context.Context, addresses []string) error {
	nodes := make([]*redis.Client, len(addresses))
	for i, addr := range addresses {
		nodes[i] = redis.NewClient(&redis.Options{Addr: addr})
		defer nodes[i].Close()
	}
	for i, node := range nodes {
		host, port, err := net.SplitHostPort(addresses[i])
		if err != nil {
			return err
		}
		n := len(nodes)
		if err := errors.Join(
			node.Do(ctx, "cluster", "set-config-epoch", i+1).Err(),
			node.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(),
			nodes[0].ClusterMeet(ctx, host, port).Err(),
		); err != nil {
			return fmt.Errorf("timerd: node %s of the Cluster: %w", addresses[i], err)
		}
	}
	return programs.Await(ctx.Done(), func() error {
		for _, node := range nodes {
			info, err := node.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d", slots)) {
				return errors.New("timerd: the Cluster is not ready")
			}
		}
		return nil
	})
}

// redisLeft counts the keys that stay, except one record for each shard. It does not count keys
// that expire, such as the heartbeats of workers.
func redisLeft(address string) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	keys := client.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		ttl, err := client.PTTL(ctx, key).Result()
		if err != nil {
			return 1, err
		}
		if ttl == -1 && !strings.HasSuffix(key, "}:m") {
			n++
		}
	}
	return n, keys.Err()
}
