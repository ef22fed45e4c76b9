package cluster_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
)

// A cluster of three brokers in this process, and an ordinary Kafka client. A record with the
// default acks=all is acknowledged when every in-sync replica has it; then the broker that leads
// its partition dies.
func Example() {
	c, err := cluster.New(cluster.Config{})
	if err != nil {
		panic(err)
	}
	defer c.Shutdown(context.Background())
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("greetings"))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "greetings", Value: []byte("hello")}).FirstErr(); err != nil {
		panic(err)
	}
	if err := c.Kill(c.Partitions()[0].Leader); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", client.PollFetches(ctx).Records()[0].Value)
	// Output: hello
}
