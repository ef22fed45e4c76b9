package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsRival is NATS's scheduled messages: a stream holds a message with a time, and publishes it
// to its target at that time.
var natsRival = rival{
	name: "nats",
	setup: "scheduled messages of JetStream, by github.com/nats-io/nats-server in a process of its own: one " +
		"stream in files, synced each second; the 100 of a batch are published at once; times to the millisecond, " +
		"where the client's own option has seconds; one pull consumer, 5,000 messages ahead",
	workloads: []string{"W13"},
	bytes:     2 << 10,
	run:       func(j Job) (Result, error) { return measureDurable(j, openNATS) },
}

func serveNATS(ctx context.Context, dir string) error {
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncInterval: time.Second,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(serverLimit) {
		return fmt.Errorf("the NATS server is not ready after %v", serverLimit)
	}
	fmt.Printf("nats: listening on %s\n", s.Addr())
	<-ctx.Done()
	return nil
}

type natsTimers struct {
	server  *server
	conn    *nats.Conn
	js      jetstream.JetStream
	stream  jetstream.Stream
	consume jetstream.ConsumeContext // nil without a worker
}

func openNATS() (_ durableTimers, err error) {
	dir, err := os.MkdirTemp("", "limbo-bench-nats-")
	if err != nil {
		return nil, err
	}
	n := &natsTimers{}
	if n.server, err = startOwnServer("nats", dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	n.server.dir = dir
	defer func() {
		if err != nil {
			_ = n.Close()
		}
	}()
	if n.conn, err = nats.Connect("nats://"+n.server.addr, nats.Timeout(serverLimit)); err != nil {
		return nil, err
	}
	if n.js, err = jetstream.New(n.conn, jetstream.WithDefaultTimeout(serverLimit)); err != nil {
		return nil, err
	}
	n.stream, err = n.js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: "timers", Subjects: []string{"wait.*", "run.*"},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		AllowMsgSchedules: true, AllowMsgTTL: true,
	})
	return n, err
}

func (n *natsTimers) Schedule(timers []durableTimer) error {
	acks := make([]jetstream.PubAckFuture, len(timers))
	for i, t := range timers {
		m := nats.NewMsg("wait." + t.key())
		m.Data = t.body()
		m.Header.Set("Nats-Schedule", "@at "+t.due.UTC().Format(time.RFC3339Nano))
		m.Header.Set("Nats-Schedule-Target", "run."+t.key())
		var err error
		if acks[i], err = n.js.PublishMsgAsync(m); err != nil {
			return err
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		}
	}
	return nil
}

func (n *natsTimers) Work(ran func(id int)) error {
	c, err := n.stream.CreateConsumer(context.Background(), jetstream.ConsumerConfig{
		Durable: "worker", FilterSubject: "run.*", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000,
	})
	if err != nil {
		return err
	}
	n.consume, err = c.Consume(func(m jetstream.Msg) {
		ran(durableID(m.Data()))
		_ = m.Ack() // without waiting for a reply
	}, jetstream.PullMaxMessages(5_000))
	return err
}

func (n *natsTimers) Remaining() (int, error) {
	info, err := n.stream.Info(context.Background())
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

func (n *natsTimers) Bytes() (int64, error) { return folderBytes(n.server.dir) }

func (n *natsTimers) Close() error {
	if n.consume != nil {
		n.consume.Stop()
	}
	if n.conn != nil {
		n.conn.Close()
	}
	return n.server.stop()
}
