package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// limboBrokerRival is examples/broker, built from the working tree and run as its
// users run it.
var limboBrokerRival = rival{
	name: "limbo-broker",
	setup: "limbo's examples/broker, `-serve` with one node, in a process of its own; " +
		"its limits of connections and partitions raised as far as needed",
	does:   []string{"W12"},
	bytes:  pollBytes,
	ready:  func() error { _, err := brokerBinary(); return err },
	server: func() (string, error) { return brokerBinary() },
	run: func(j Job) (Result, error) {
		room := strconv.Itoa(j.Params["parked"] + 64)
		return longPoll(j, exec.Command(j.Server, "-serve", "-addr", "127.0.0.1:0", "-brokers", "1",
			"-max-connections", room, "-max-partitions", room, "-max-parked", room))
	},
}

// brokerBinary builds the broker once, and returns its path.
var brokerBinary = sync.OnceValues(func() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	tool, err := program("golang-go", "go")
	if err != nil {
		return "", err
	}
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "limbo-broker")
	build := exec.Command(tool, "build", "-o", file, "./broker")
	build.Dir = filepath.Join(root, "examples")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, complaint(out))
	}
	return file, nil
})

// complaint returns the first line of a compiler's output that is not a heading.
func complaint(out []byte) string {
	for line := range bytes.Lines(out) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return string(line)
		}
	}
	return ""
}
