package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

// With -json, stdout is exactly one line: scripts read it.
func TestDriveJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run([]string{"-json", "-duration", "300ms", "-polls", "100", "-rate", "1000", "-faults=false"}, &stdout, &stderr)
	require.Zero(t, status, stderr.String())
	require.Equal(t, 1, strings.Count(stdout.String(), "\n"))
	var got map[string]any
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &got))
	require.Len(t, got, 8)
	for _, key := range []string{"records", "lost", "duplicated", "out_of_order", "fetches", "wake_us", "goroutines_leaked", "operations"} {
		require.Contains(t, got, key)
	}
	require.Len(t, got["fetches"], 5)
	for _, kind := range []string{"produce", "fetch", "join", "sync", "heartbeat", "delete_records"} {
		require.Contains(t, got["operations"], kind)
		require.Len(t, got["operations"].(map[string]any)[kind], 6)
	}
	require.Contains(t, stderr.String(), "each seen once and in order")
}

func TestBadArguments(t *testing.T) {
	for args, want := range map[string]string{
		"-nonsense":       "flag provided but not defined: -nonsense",
		"argument":        `unexpected argument "argument"`,
		"-partitions 0":   "-partitions is 0, must be more",
		"-partitions -1":  "-partitions is -1, must be 1 to -max-partitions, 4096",
		"-max-batch 0":    "-max-batch is 0, must be more",
		"-brokers 0":      "-brokers is 0, must be more",
		"-duration 0s":    "-duration is 0, must be more",
		"-duration -1s":   "-duration is -1s, must be more than 0",
		"-polls -1":       "-polls is -1, must be at least 0",
		"-rate -1":        "-rate is -1, must be at least 0",
		"-log-level loud": `invalid value "loud" for flag -log-level: must be debug, info, warn or error`,
	} {
		var stderr bytes.Buffer
		require.Equal(t, 2, run(strings.Fields(args), io.Discard, &stderr), args)
		require.Contains(t, stderr.String(), want)
	}
	for _, args := range [][]string{{"-serve", "-addr", "0.0.0.0:0"}, {"-addr", "0.0.0.0:0"}, {"-max-batch", "-1"}, {"-brokers", "17"}} {
		require.Equal(t, 1, run(args, io.Discard, io.Discard), args)
	}
}

// The tour's faults change leaders and in-sync sets dozens of times. These changes are logged only
// on request, and never to stdout.
func TestLogLevel(t *testing.T) {
	args := strings.Fields("-brokers 1 -duration 200ms -polls 1 -rate 100 -faults=false")
	for _, level := range []string{"", "info"} {
		var stdout, stderr bytes.Buffer
		if level != "" {
			args = append(args, "-log-level", level)
		}
		require.Zero(t, run(args, &stdout, &stderr), "%s%s", &stdout, &stderr)
		require.NotContains(t, stdout.String(), "level=")
		if level == "" {
			require.Empty(t, stderr.String())
		} else {
			require.Contains(t, stderr.String(), `level=INFO msg="broker: registered" broker=0`)
		}
	}
}

// TestServe runs -serve in another process, parks a fetch and ends the process.
func TestServe(t *testing.T) {
	if os.Getenv("BROKER_TEST_SERVE") == "1" {
		os.Exit(run([]string{"-serve", "-brokers", "1"}, os.Stdout, os.Stderr))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServe$")
	cmd.Env = append(os.Environ(), "BROKER_TEST_SERVE=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var logged bytes.Buffer
	cmd.Stderr = &logged
	require.NoError(t, cmd.Start())
	line := make([]byte, 256)
	n, err := out.Read(line)
	require.NoError(t, err)
	addr, found := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "broker: listening on ")
	require.True(t, found, string(line[:n]))

	c := kafkatest.Dial(t, addr)
	fetch := kafkatest.Fetch(12, &meta.Topic{Name: "t"}, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	c.Call(metadataRequest("t"))
	// Requests on one connection are handled in order: when the second request's topic exists, the
	// fetch before it is parked.
	c.Send(fetch, metadataRequest("after"))
	other := kafkatest.Dial(t, addr)
	require.Eventually(t, func() bool {
		all := kmsg.NewPtrMetadataRequest()
		all.Version = 9
		return len(other.Call(all).(*kmsg.MetadataResponse).Topics) == 2
	}, kafkatest.WaitLimit, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Empty(t, kafkatest.PartitionsOf(c.Receive(fetch))[0].RecordBatches)
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "exit status 0")
	require.Contains(t, string(rest), "1 were parked")
	require.Contains(t, logged.String(), `level=INFO msg="broker: registered" broker=0`)
}

// If the page's port is in use, the error names it and no broker keeps running.
func TestPageAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, stop := signal.NotifyContext(t.Context(), os.Interrupt) // the first call leaves a goroutine
	stop()
	for _, mode := range []string{"-serve", "-faults=false"} {
		before := runtime.NumGoroutine()
		var stderr bytes.Buffer
		require.Equal(t, 1, run([]string{mode, "-brokers", "1", "-http", l.Addr().String()}, io.Discard, &stderr), mode)
		require.Contains(t, stderr.String(), l.Addr().String())
		require.Zero(t, selfcheck.Goroutines(before), mode)
	}
}

func metadataRequest(name string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = 9, true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	return req
}
