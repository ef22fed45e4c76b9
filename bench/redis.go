package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/internal/programs"
)

// redisPath returns the path of redis-server, or of valkey-server.
func redisPath() (string, error) {
	return program("redis-server", "redis-server", "valkey-server")
}

func redisReady() error { _, err := redisPath(); return err }

// startRedis starts a server on its own loopback port, with a log that is synced each second.
// Its folder is removed when the server is stopped.
func startRedis() (*server, error) {
	path, err := redisPath()
	if err != nil {
		return nil, err
	}
	addr, err := programs.Addr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "limbo-bench-redis-")
	if err != nil {
		return nil, err
	}
	p, err := programs.StartRedis(path, addr, dir, "--appendonly", "yes", "--appendfsync", "everysec")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &server{p, addr, dir}, nil
}

// redisMemory returns the bytes that the server has allocated.
func redisMemory(c redis.UniversalClient) (int64, error) {
	info, err := c.Info(context.Background(), "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		var n int64
		if _, err := fmt.Sscanf(line, "used_memory:%d", &n); err == nil {
			return n, nil
		}
	}
	return 0, errors.New("INFO memory has no used_memory")
}

// folderBytes returns the size of all files in a folder and the folders in it.
func folderBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed during the walk
		}
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
