package tour

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The producers and consumers of the drive: ordinary kgo clients. They produce idempotently by
// default, with five batches in flight.

// produceOne passes the next record of a partition to kgo. One goroutine produces to a partition,
// so kgo gets the numbers in order.
func (d *drive) produceOne(cl *kgo.Client, topic string, index int32) {
	p := d.ledger.partition(topic, index)
	n := p.send()
	cl.Produce(d.grace, &kgo.Record{Topic: topic, Partition: index, Value: recordValue(n)},
		func(r *kgo.Record, err error) {
			if err == nil {
				p.ack(n, r.Offset, max(time.Since(d.start), 1))
			} else if p.fail() {
				d.problem("produce to %s/%d, record %d: %v", topic, index, n, err)
			}
		})
}

// deliveryTimeout is how long a producer retries: longer than any scenario takes.
const deliveryTimeout = time.Minute

// withProducer runs work with a producer, and then flushes it.
func (d *drive) withProducer(work func(cl *kgo.Client), opts ...kgo.Opt) {
	opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(deliveryTimeout))
	cl, err := d.client(opts...)
	if err != nil {
		d.problem("producer: %v", err)
		return
	}
	defer cl.Close()
	work(cl)
	if err := cl.Flush(d.grace); err != nil {
		d.problem("flush: %v", err)
	}
}

// produceSteady spreads rate records evenly over each second. After a delay it catches up with at
// most the last second.
func (d *drive) produceSteady(ctx context.Context) {
	const step = 10 * time.Millisecond
	d.withProducer(func(cl *kgo.Client) {
		t := time.NewTicker(step)
		defer t.Stop()
		start, sent := time.Now(), 0
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			due := int(time.Since(start).Seconds() * float64(d.load.Rate))
			for sent = max(sent, due-d.load.Rate); sent < due && ctx.Err() == nil; sent++ {
				d.produceOne(cl, steadyTopic, int32(sent%busyPartitions))
			}
		}
	}, kgo.ProducerLinger(5*time.Millisecond))
}

// produceBursts sends one second's worth of records at once, every other second.
func (d *drive) produceBursts(ctx context.Context) {
	d.withProducer(func(cl *kgo.Client) {
		every(ctx, min(2*time.Second, max(d.load.Duration/5, time.Millisecond)), func() {
			for i := range d.load.Rate {
				if i%64 == 0 && ctx.Err() != nil {
					return
				}
				d.produceOne(cl, burstTopic, int32(i%busyPartitions))
			}
		})
	}, kgo.ProducerBatchCompression(kgo.SnappyCompression()))
}

// produceQuiet occasionally wakes the polls of a partition. Every fourth partition gets no records
// at all: polls there expire.
func (d *drive) produceQuiet(ctx context.Context) {
	quiet := len(d.ledger.topics[quietTopic])
	d.withProducer(func(cl *kgo.Client) {
		every(ctx, d.load.Trickle, func() {
			if index := rand.Int32N(int32(quiet)); index%4 != 3 {
				d.produceOne(cl, quietTopic, index)
			}
		})
	}, kgo.ProducerLinger(0))
}

func every(ctx context.Context, period time.Duration, f func()) {
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// consume reads topics from the beginning and checks off the records in the ledger.
func (d *drive) consume(ctx context.Context, topics ...string) {
	from := map[string]map[int32]kgo.Offset{}
	for _, topic := range topics {
		from[topic] = map[int32]kgo.Offset{}
		for i := range d.ledger.topics[topic] {
			from[topic][int32(i)] = kgo.NewOffset().AtStart()
		}
	}
	cl, err := d.client(kgo.ConsumePartitions(from), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		d.problem("consumer: %v", err)
		return
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		fetches.EachError(func(topic string, index int32, err error) {
			if !errors.Is(err, context.Canceled) {
				d.problem("consume %s/%d: %v", topic, index, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			n, ok := recordNumber(r.Value)
			if !ok {
				d.problem("%s/%d at %d holds a record that no producer sent", r.Topic, r.Partition, r.Offset)
				return
			}
			d.ledger.partition(r.Topic, r.Partition).see(n, r.Offset)
		})
	}
}
