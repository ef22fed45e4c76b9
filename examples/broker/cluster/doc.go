// Package cluster runs a small Kafka cluster in this process, for tests and for programs. The
// brokers have their own ports, speak Kafka's protocol to any client, replicate to each other, and
// keep their records in memory.
//
//	c, err := cluster.New(cluster.Config{})
//	if err != nil {
//		return err
//	}
//	defer c.Shutdown(context.Background())
//	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
//
// Brokers can be stopped, killed, paused, slowed down and cut off from each other.
package cluster
