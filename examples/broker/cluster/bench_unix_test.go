//go:build unix

package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkPartitions measures the cost of idle partitions, replicated three times: the CPU time of
// four idle seconds, and the latency that they add to a record on one of them with acks=all. Run it
// with -benchtime 1x.
func BenchmarkPartitions(b *testing.B) {
	for _, partitions := range []int32{13, 1000, 4000} {
		b.Run(fmt.Sprint("partitions=", partitions), func(b *testing.B) {
			cfg := Config{}
			cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
			c, err := New(cfg)
			require.NoError(b, err)
			defer func() { require.NoError(b, c.Shutdown(context.Background())) }()
			cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.DefaultProduceTopic("t"),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
			require.NoError(b, err)
			defer cl.Close()
			req := kmsg.NewPtrCreateTopicsRequest()
			req.TimeoutMillis = 10_000
			rt := kmsg.NewCreateTopicsRequestTopic()
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "t", partitions, 3
			req.Topics = append(req.Topics, rt)
			_, err = req.RequestWith(b.Context(), cl)
			require.NoError(b, err)
			require.NoError(b, c.WaitHealthy(b.Context()))
			var idle float64
			var took []time.Duration
			for b.Loop() {
				still := time.NewTimer(4 * time.Second)
				begun, before := time.Now(), processorTime(b)
				<-still.C
				idle += float64(processorTime(b)-before) / float64(time.Since(begun)) * 100
				for i := range int32(500) {
					begun := time.Now()
					require.NoError(b, cl.ProduceSync(b.Context(), &kgo.Record{Partition: i % partitions, Value: []byte("x")}).FirstErr())
					took = append(took, time.Since(begun))
				}
			}
			slices.Sort(took)
			b.ReportMetric(idle/float64(b.N), "idle-cpu-%")
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "ack-p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "ack-p99-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
