package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

type viaKafkaGo struct{}

func (viaKafkaGo) admin(ctx context.Context, addrs []string, topic string, did func(string)) error {
	cl := &kafka.Client{Addr: kafka.TCP(addrs...), Timeout: 10 * time.Second}
	const hour, most = "3600000", "1000000"
	created, err := cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: 4, ReplicationFactor: 3,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: hour}},
	}}})
	if err != nil || created.Errors[topic] != nil {
		return fmt.Errorf("create: %+v, %w", created, err)
	}
	did("create")
	md, err := cl.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil || len(md.Topics) != 1 || len(md.Topics[0].Partitions) != 4 {
		return fmt.Errorf("list: %+v, %w", md, err)
	}
	did("list")
	setting := retrying(ctx, func(name, want string) error {
		d, err := cl.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name},
		}}})
		if err != nil || len(d.Resources) != 1 || len(d.Resources[0].ConfigEntries) != 1 || d.Resources[0].ConfigEntries[0].ConfigValue != want {
			return fmt.Errorf("%s: %+v, not %s, %w", name, d, want, err)
		}
		return nil
	})
	if err := setting("retention.ms", hour); err != nil {
		return err
	}
	did("settings")
	grown, err := cl.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 6}}})
	if err != nil || grown.Errors[topic] != nil {
		return fmt.Errorf("grow: %+v, %w", grown, err)
	}
	did("grow")
	if _, err := cl.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.bytes", Value: most, ConfigOperation: kafka.ConfigOperationSet}},
	}}}); err != nil {
		return fmt.Errorf("alter: %w", err)
	}
	if err := setting("retention.bytes", most); err != nil {
		return err
	}
	did("alter")
	deleted, err := cl.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil || deleted.Errors[topic] != nil {
		return fmt.Errorf("delete: %+v, %w", deleted, err)
	}
	did("delete")
	return nil
}

func (viaKafkaGo) produce(ctx context.Context, addrs []string, topic string, codecs []string, values <-chan string, acked func(string)) error {
	transport := &kafka.Transport{MetadataTTL: 500 * time.Millisecond} // how soon it learns of a new leader
	defer transport.CloseIdleConnections()
	var writers []*kafka.Writer
	for _, codec := range codecs {
		w := &kafka.Writer{
			Addr: kafka.TCP(addrs...), Topic: topic, RequiredAcks: kafka.RequireAll,
			BatchTimeout: time.Millisecond, MaxAttempts: 100, Transport: transport,
			WriteTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second,
		}
		defer w.Close()
		if codec != "none" {
			if err := w.Compression.UnmarshalText([]byte(codec)); err != nil {
				return err
			}
		}
		writers = append(writers, w)
	}
	for n := 0; ; n++ {
		v, more := <-values
		if !more {
			return nil
		}
		if err := writers[n%len(writers)].WriteMessages(ctx, kafka.Message{Value: []byte(v)}); err != nil {
			return err
		}
		acked(v)
	}
}

func (viaKafkaGo) consume(ctx context.Context, addrs []string, topic string, n int, got func(string)) error {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: addrs, Topic: topic, MaxWait: 100 * time.Millisecond})
	for range n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return err
		}
		got(string(m.Value))
	}
	return r.Close()
}

func (viaKafkaGo) member(ctx context.Context, addrs []string, topic, group string, got func(string)) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: addrs, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
		SessionTimeout: 3 * time.Second, HeartbeatInterval: time.Second, RebalanceTimeout: 3 * time.Second, JoinGroupBackoff: 100 * time.Millisecond,
	})
	for {
		m, err := r.FetchMessage(ctx)
		switch {
		case ctx.Err() != nil:
			return r.Close()
		case errors.Is(err, io.EOF): // the reader is closed; every further call returns this too
			return err
		case err != nil:
			fmt.Fprintln(os.Stderr, err) // the reader retries by itself, after a pause
			continue
		}
		got(string(m.Value))
		_ = r.CommitMessages(ctx, m) // a record whose commit fails is delivered again
	}
}
