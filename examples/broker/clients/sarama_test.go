package clients

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type viaSarama struct{}

func (viaSarama) config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Retry.Max = 100
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.Session.Timeout = 3 * time.Second
	cfg.Consumer.Group.Heartbeat.Interval = time.Second
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	cfg.Consumer.Retry.Backoff = 100 * time.Millisecond
	cfg.Metadata.Retry.Max = 20
	cfg.Admin.Timeout = waitLimit
	return cfg
}

func (v viaSarama) admin(ctx context.Context, addrs []string, topic string, did func(string)) error {
	admin, err := sarama.NewClusterAdmin(addrs, v.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	hour, most := "3600000", "1000000"
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 3, ConfigEntries: map[string]*string{"retention.ms": &hour}}, false); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	did("create")
	err = retry(ctx, func() error {
		topics, err := admin.ListTopics()
		if err != nil || topics[topic].NumPartitions != 4 {
			return fmt.Errorf("list: %+v, %w", topics[topic], err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	did("list")
	setting := retrying(ctx, func(name, want string) error {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}})
		if err != nil || len(entries) != 1 || entries[0].Value != want {
			return fmt.Errorf("%s: %+v, not %s, %w", name, entries, want, err)
		}
		return nil
	})
	if err := setting("retention.ms", hour); err != nil {
		return err
	}
	did("settings")
	if err := admin.CreatePartitions(topic, 6, nil, false); err != nil {
		return fmt.Errorf("grow: %w", err)
	}
	did("grow")
	if err := admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.bytes": &most}, false); err != nil {
		return fmt.Errorf("alter: %w", err)
	}
	if err := setting("retention.bytes", most); err != nil {
		return err
	}
	did("alter")
	if err := admin.DeleteTopic(topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	did("delete")
	return nil
}

func (v viaSarama) produce(_ context.Context, addrs []string, topic string, codecs []string, values <-chan string, acked func(string)) error {
	var producers []sarama.SyncProducer
	for _, codec := range codecs {
		cfg := v.config()
		if err := cfg.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
			return err
		}
		p, err := sarama.NewSyncProducer(addrs, cfg)
		if err != nil {
			return err
		}
		defer p.Close()
		producers = append(producers, p)
	}
	for n := 0; ; n++ {
		v, more := <-values
		if !more {
			return nil
		}
		if _, _, err := producers[n%len(producers)].SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(v)}); err != nil {
			return err
		}
		acked(v)
	}
}

func (v viaSarama) consume(_ context.Context, addrs []string, topic string, n int, got func(string)) error {
	c, err := sarama.NewConsumer(addrs, v.config())
	if err != nil {
		return err
	}
	part, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	for range n {
		got(string((<-part.Messages()).Value))
	}
	if err := part.Close(); err != nil {
		return err
	}
	return c.Close()
}

func (v viaSarama) member(ctx context.Context, addrs []string, topic, group string, got func(string)) error {
	g, err := sarama.NewConsumerGroup(addrs, group, v.config())
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		_ = g.Consume(ctx, []string{topic}, saramaClaims{got}) // retried: a coordinator moves
	}
	return g.Close()
}

// saramaClaims passes its member's records to got.
type saramaClaims struct{ got func(string) }

func (saramaClaims) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaClaims) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (c saramaClaims) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		c.got(string(m.Value))
		session.MarkMessage(m, "")
	}
	return nil
}
