package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The client of W12: connections that speak Kafka's protocol with kmsg, without a client
// library, to add as little as possible to the measured times.

const (
	pollTopic = "polls"
	// pollWait is longer than the job: only a record answers a fetch.
	pollWait = 10 * time.Minute
)

// polls is a topic with a fetch parked on each partition.
type polls struct {
	producer *kafkaConn
	all      []*poll
	*responses
}

// poll is one fetch, sent again after each response.
type poll struct {
	conn      *kafkaConn
	partition int32
	offset    int64
}

// park creates the topic and sends a fetch on each of n connections.
func park(addr string, n int) (_ *polls, err error) {
	ps := &polls{responses: newResponses(n)}
	defer func() {
		if err != nil {
			ps.close()
		}
	}()
	if ps.producer, err = dialKafka(addr); err != nil {
		return nil, err
	}
	if err := ps.producer.createTopic(pollTopic, n); err != nil {
		return nil, err
	}
	for i := range n {
		conn, err := dialKafka(addr)
		if err != nil {
			return nil, err
		}
		p := &poll{conn: conn, partition: int32(i)}
		ps.all = append(ps.all, p)
		ps.read(i, conn.read)
		if err := p.send(); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// close closes all connections.
func (ps *polls) close() {
	if ps.producer != nil {
		_ = ps.producer.nc.Close()
	}
	for _, p := range ps.all {
		_ = p.conn.nc.Close()
	}
	ps.readers.Wait()
}

// wake produces to a partition and returns the time until its fetch is answered.
func (ps *polls) wake(i int) (time.Duration, error) {
	p := ps.all[i]
	req := produceRequest(pollTopic, p.partition)
	frame := ps.producer.frame(req)
	begun := time.Now()
	if err := ps.producer.write(frame); err != nil {
		return 0, err
	}
	got, err := ps.await(i)
	if err != nil {
		return 0, err
	}
	if err := p.check(got.body); err != nil {
		return 0, err
	}
	produced, err := ps.producer.receive(req)
	if err != nil {
		return 0, err
	}
	for _, t := range produced.(*kmsg.ProduceResponse).Topics {
		for _, sp := range t.Partitions {
			if err := kerr.ErrorForCode(sp.ErrorCode); err != nil {
				return 0, err
			}
		}
	}
	return got.at.Sub(begun), p.send()
}

func (p *poll) request() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12 // the last version with topic names
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(pollWait/time.Millisecond), 1, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = pollTopic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.partition, p.offset, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (p *poll) send() error { return p.conn.write(p.conn.frame(p.request())) }

// check returns an error unless the response contains exactly the expected record.
func (p *poll) check(frame []byte) error {
	resp, err := p.conn.decode(p.request(), frame)
	if err != nil {
		return err
	}
	fetched := resp.(*kmsg.FetchResponse)
	if len(fetched.Topics) != 1 || len(fetched.Topics[0].Partitions) != 1 {
		return errors.New("an answer for other partitions than were asked for")
	}
	sp := &fetched.Topics[0].Partitions[0]
	if err := errors.Join(kerr.ErrorForCode(fetched.ErrorCode), kerr.ErrorForCode(sp.ErrorCode)); err != nil {
		return err
	}
	var b kmsg.RecordBatch
	if err := b.ReadFrom(sp.RecordBatches); err != nil {
		return fmt.Errorf("a fetch was answered without a record: %w", err)
	}
	if b.FirstOffset != p.offset || b.NumRecords != 1 {
		return fmt.Errorf("%d records from offset %d on, where one at %d was to come", b.NumRecords, b.FirstOffset, p.offset)
	}
	p.offset++
	return nil
}

// kafkaConn has one request at a time in flight.
type kafkaConn struct {
	nc          net.Conn
	br          *bufio.Reader
	correlation int32
}

func dialKafka(addr string) (*kafkaConn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &kafkaConn{nc: nc, br: bufio.NewReaderSize(nc, 512)}, nil
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))

func (c *kafkaConn) frame(req kmsg.Request) []byte {
	c.correlation++
	return formatter.AppendRequest(nil, req, c.correlation)
}

func (c *kafkaConn) write(frame []byte) error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(responseTimeout))
	_, err := c.nc.Write(frame)
	return err
}

// read reads the bytes of the next response, without its length.
func (c *kafkaConn) read() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.br, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 16<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(c.br, frame)
	return frame, err
}

// decode decodes the response to the last request.
func (c *kafkaConn) decode(req kmsg.Request, frame []byte) (kmsg.Response, error) {
	if len(frame) < 5 {
		return nil, fmt.Errorf("an answer of %d bytes", len(frame))
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != c.correlation {
		return nil, fmt.Errorf("an answer to request %d, where %d is next", got, c.correlation)
	}
	resp := req.ResponseKind()
	body := frame[4:]
	if resp.IsFlexible() {
		body = body[1:] // the header's tags: none
	}
	return resp, resp.ReadFrom(body)
}

func (c *kafkaConn) receive(req kmsg.Request) (kmsg.Response, error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(responseTimeout))
	frame, err := c.read()
	if err != nil {
		return nil, err
	}
	return c.decode(req, frame)
}

func (c *kafkaConn) createTopic(name string, partitions int) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 5, int32(responseTimeout/time.Millisecond)
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, int32(partitions), 1
	req.Topics = append(req.Topics, rt)
	if err := c.write(c.frame(req)); err != nil {
		return err
	}
	resp, err := c.receive(req)
	if err != nil {
		return err
	}
	for _, st := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(st.ErrorCode); err != nil {
			return fmt.Errorf("a topic of %d partitions: %w", partitions, err)
		}
	}
	return nil
}

func produceRequest(topic string, partition int32) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, int32(responseTimeout/time.Millisecond)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, oneRecord()
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// oneRecord is a batch of one record of 100 bytes.
var oneRecord = sync.OnceValue(func() []byte {
	const (
		lengthEnd = 12 // the bytes that a batch's length excludes
		crcEnd    = 21
	)
	record := kmsg.Record{Value: make([]byte, 100)}
	record.Length = int32(len(record.AppendTo(nil)) - 1) // a length of 0 is one byte
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1,
		Magic:                2,
		FirstTimestamp:       now,
		MaxTimestamp:         now,
		ProducerID:           -1,
		ProducerEpoch:        -1,
		FirstSequence:        -1,
		NumRecords:           1,
		Records:              record.AppendTo(nil),
	}
	batch.Length = int32(len(batch.AppendTo(nil)) - lengthEnd)
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[crcEnd-4:], crc32.Checksum(raw[crcEnd:], castagnoli))
	return raw
})
