package tour

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisServer is the redis-server, or valkey-server, found on PATH. It writes each
// change to its log before it answers, so that a kill loses nothing that was
// answered.
func redisServer(dir, address string) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if path, err = exec.LookPath("valkey-server"); err != nil {
			return nil, fmt.Errorf("timerd: -store redis needs redis-server on PATH (Debian's package redis-server): %w", err)
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "redis")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	return &process{name: "redis", log: filepath.Join(dir, "redis.log"), command: func() *exec.Cmd {
		return exec.Command(path, "--bind", host, "--port", port, "--dir", data, "--daemonize", "no",
			"--appendonly", "yes", "--appendfsync", "always", "--save", "")
	}}, nil
}

// redisLeft counts the keys that stay: all but one record for each shard, and but
// what expires by itself, such as the signs of workers.
func redisLeft(address string) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startUp)
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
