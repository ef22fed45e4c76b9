package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/seed-782fa212/limbo/internal/programs"
)

// nodesRival runs examples/longpoll, which measures itself: three nodes, and a cluster of
// brokers that carries events published at one node to the others. A wake-up is the time from an
// event's arrival at a node until a client has read the response to its poll at another node.
var nodesRival = rival{
	name: "longpoll-nodes",
	setup: "limbo's examples/longpoll: three nodes on a topic of examples/broker's cluster, and all clients, in one process, " +
		"a fifth of them over HTTP/1.1, the others over HTTP/2; 50 events a second, for 5 polls each; wake-ups at other nodes than the event's",
	workloads:   []string{"W15"},
	bytes:       httpPollBytes,
	unavailable: func() error { _, err := program("golang-go", "go"); return err },
	run:         runNodes,
}

func runNodes(j Job) (res Result, err error) {
	root, err := repository()
	if err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp("", "limbo-bench-nodes-")
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := filepath.Join(dir, "longpoll")
	build := exec.Command("go", "build", "-o", binary, "github.com/seed-782fa212/limbo/examples/longpoll")
	build.Dir = filepath.Join(root, "bench")
	if out, err := build.CombinedOutput(); err != nil {
		return Result{}, fmt.Errorf("go build: %w: %s", err, lastLine(out))
	}
	calm := "10s"
	if j.Quick {
		calm = quickIdle.String()
	}
	play := exec.Command(binary, "-json", "-polls", fmt.Sprint(j.Params["parked"]), "-calm", calm, "-faults", "100ms",
		"-seed", fmt.Sprint(uint64(j.seed())))
	var stdout, stderr bytes.Buffer
	play.Stdout, play.Stderr = &stdout, &stderr
	p, err := programs.Start(play)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return Result{}, fmt.Errorf("examples/longpoll: %w: %s", err, lastLine(stderr.Bytes()))
	}
	var got struct {
		Wake struct{ P50, P99 float64 } `json:"cross_node_wake_us"`
	}
	if err := json.Unmarshal(lastLine(stdout.Bytes()), &got); err != nil {
		return Result{}, fmt.Errorf("what examples/longpoll printed: %w", err)
	}
	if got.Wake.P50 <= 0 {
		return Result{}, errors.New("examples/longpoll has seen no event at another node")
	}
	return Result{Metrics: Metrics{"wake_p50_us": got.Wake.P50, "wake_p99_us": got.Wake.P99}}, nil
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
