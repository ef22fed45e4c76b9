package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// With -json, stdout has one line and no more: scripts read it.
func TestDriveJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run([]string{"-json", "-duration", "2s", "-polls", "100", "-rate", "1000", "-faults=false"}, &stdout, &stderr)
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
	for _, args := range [][]string{
		{"-nonsense"}, {"argument"}, {"-partitions", "0"}, {"-max-batch", "0"}, {"-brokers", "0"}, {"-duration", "0s"}, {"-polls", "-1"},
	} {
		require.Equal(t, 2, run(args, io.Discard, io.Discard), args)
	}
	for _, args := range [][]string{{"-serve", "-addr", "0.0.0.0:0"}, {"-addr", "0.0.0.0:0"}, {"-max-batch", "-1"}, {"-brokers", "17"}} {
		require.Equal(t, 1, run(args, io.Discard, io.Discard), args)
	}
}

// TestServe runs -serve as a process of its own, parks a fetch and ends it.
func TestServe(t *testing.T) {
	if os.Getenv("BROKER_TEST_SERVE") == "1" {
		os.Exit(run([]string{"-serve", "-brokers", "1"}, os.Stdout, os.Stderr))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServe$")
	cmd.Env = append(os.Environ(), "BROKER_TEST_SERVE=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 256)
	n, err := out.Read(line)
	require.NoError(t, err)
	addr, found := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "broker: listening on ")
	require.True(t, found, string(line[:n]))

	c := kafkatest.Dial(t, addr)
	fetch := kafkatest.Fetch(12, &meta.Topic{Name: "t"}, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	c.Call(metadataRequest("t"))
	// Handled in order on one connection: when the topic of the second request
	// exists, the fetch before it is parked.
	c.Send(fetch, metadataRequest("after"))
	other := kafkatest.Dial(t, addr)
	require.Eventually(t, func() bool {
		all := kmsg.NewPtrMetadataRequest()
		all.Version = 9
		return len(other.Call(all).(*kmsg.MetadataResponse).Topics) == 2
	}, kafkatest.Patience, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Empty(t, kafkatest.PartitionsOf(c.Receive(fetch))[0].RecordBatches)
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "exit status 0")
	require.Contains(t, string(rest), "1 were parked")
}

func metadataRequest(name string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = 9, true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	return req
}
