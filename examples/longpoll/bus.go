package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bus sends each event to all nodes. It is a Kafka topic that each node writes to and reads by
// itself, from its beginning, not as a member of a group.
type bus struct {
	client *kgo.Client
	topic  string
}

// createTopic creates the topic of a bus if it does not exist.
func createTopic(ctx context.Context, brokers []string, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	const partitions = 6 // a hash of its name assigns a room to one of them
	made, err := kadm.NewClient(client).CreateTopic(ctx, partitions, -1, nil, topic)
	if err = errors.Join(err, made.Err); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	return nil
}

// openBus connects to the brokers. lost is a hook for connections to them.
func openBus(brokers []string, topic string, lost kgo.Hook) (*bus, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100*time.Millisecond), // to find a new leader soon
		kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(20*time.Second),
		kgo.WithHooks(lost),
	)
	if err != nil {
		return nil, err
	}
	return &bus{client, topic}, nil
}

// publish returns when every in-sync replica has the event.
func (b *bus) publish(ctx context.Context, room string, e event) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return b.client.ProduceSync(ctx, &kgo.Record{Topic: b.topic, Key: []byte(room), Value: value}).FirstErr()
}

// read calls f with each event until ctx ends.
func (b *bus) read(ctx context.Context, f func(room string, e event)) {
	for {
		fetches := b.client.PollFetches(ctx)
		if fetches.IsClientClosed() || ctx.Err() != nil {
			return
		}
		// The client retries after errors; unreadable records are ignored.
		fetches.EachRecord(func(r *kgo.Record) {
			var e event
			if json.Unmarshal(r.Value, &e) == nil {
				e.Offset = r.Offset
				f(string(r.Key), e)
			}
		})
	}
}

func (b *bus) close() { b.client.Close() }
