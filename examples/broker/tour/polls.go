package tour

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/internal/openfiles"
)

// The long polls of the drive: thousands of fetches on partitions with hardly any records. A kgo
// client has one fetch per broker in flight, so these are raw connections, each with as many
// pipelined fetches as the broker allows.
//
// All polls of a connection read one partition from one offset and have the same max wait:
// responses come in order, and a poll that is woken or expires should not wait behind one that does
// not. Occasionally an ApiVersions request is sent between them: it is ready at once, and must not
// overtake.

// pollers holds all poll connections and their counters.
type pollers struct {
	d     *drive
	conns []*poller
	wg    sync.WaitGroup

	sent, answered atomic.Uint64
	withData       atomic.Uint64 // of the answered
	empty          atomic.Uint64 // of the answered, after their max wait
	closing        atomic.Uint64 // of the answered, empty, by the shutdown
	disconnected   atomic.Uint64 // sent, and not answered before this side disconnected
	early          atomic.Uint64 // answered without data before their max wait
	leaderChanges  atomic.Uint64 // answered with an error: another broker leads the partition
	broken         atomic.Uint64 // sent to a broker that then stopped, and not answered

	draining     atomic.Bool // send no more polls
	shuttingDown atomic.Bool // the broker may answer at any time
}

// poller is one connection with its polls.
type poller struct {
	pollers *pollers
	index   int32 // of its partition
	version int16
	depth   int

	mu      sync.Mutex
	nc      net.Conn // guarded by mu
	closing bool     // this side hung up; guarded by mu
	ended   bool     // guarded by mu

	// Only the connection's own goroutine uses these.
	srv           *cluster.Broker // the broker at the other end
	leaderChanged bool            // it no longer leads the partition
	maxWait       time.Duration
	offset        int64
	correlation   int32
	inFlight      []poll // in the order sent
}

// poll is a fetch in flight.
type poll struct {
	correlation int32
	sent        time.Time // before its bytes left, so the broker's wait starts later
	maxWait     time.Duration
	offset      int64
	isVersions  bool // an ApiVersions request, not a fetch
}

// pollShape returns the number of connections and of polls on each, within half of the process's
// file limit, because both ends of a connection are in this process.
func pollShape(polls, perConn int) (conns, depth int) {
	if polls == 0 {
		return 1, 1
	}
	conns = (polls + perConn - 1) / perConn
	conns = max(1, min(conns, (openfiles.Limit()-128)/3))
	return conns, min(perConn, (polls+conns-1)/conns)
}

// The versions of Fetch that the broker answers.
const firstPoll, lastPoll = 4, 18

func startPolls(d *drive, conns, depth, partitions int) *pollers {
	ps := &pollers{d: d}
	for i := range conns {
		p := &poller{
			pollers: ps,
			index:   int32(i % partitions),
			version: firstPoll + int16(i)%(lastPoll-firstPoll+1), // every version there is
			depth:   depth,
		}
		ps.conns = append(ps.conns, p)
	}
	for _, p := range ps.conns {
		ps.wg.Go(p.run)
	}
	return ps
}

// disconnectSome periodically closes an even-numbered connection with all its parked polls. On
// the odd-numbered ones polls can expire.
func (ps *pollers) disconnectSome(ctx context.Context) {
	every(ctx, ps.d.load.HangUps, func() {
		p := ps.conns[rand.IntN((len(ps.conns)+1)/2)*2]
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.nc != nil && !p.ended {
			p.closing = true
			_ = p.nc.Close()
		}
	})
}

// drain stops the sending and waits until the broker has read every poll that was sent, so that a
// shutdown finds them all: then the outstanding polls here equal the requests queued at the
// broker's connections. Both numbers shrink while polls expire, and differ only by responses in
// flight.
func (ps *pollers) drain(timeout time.Duration) {
	ps.draining.Store(true)
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		queued := 0
		for id := range ps.d.cluster.Brokers() {
			if b := ps.d.cluster.Running(id); b != nil {
				queued += b.Queued()
			}
		}
		if int(ps.outstanding()) == queued {
			return
		}
	}
}

func (ps *pollers) outstanding() int64 {
	// Load these first: otherwise a poll that is counted in between could make the result -1.
	done := ps.answered.Load() + ps.disconnected.Load() + ps.broken.Load()
	return int64(ps.sent.Load() - done)
}

// wait returns when every connection is closed, by a shutdown.
func (ps *pollers) wait() { ps.wg.Wait() }

// dial connects to the partition's current leader, if known.
func (p *poller) dial() (net.Conn, error) {
	if p.srv = p.pollers.d.cluster.Leader(quietTopic, p.index); p.srv == nil {
		return nil, errors.New("no leader, or it has stopped")
	}
	return p.pollers.d.network.DialContext(context.Background(), "tcp", p.srv.Addr())
}

// run dials, polls until either side disconnects, and dials again.
func (p *poller) run() {
	rng := rand.New(rand.NewPCG(1, uint64(p.index)))
	var lost time.Time // since when the leader cannot be reached
	for !p.pollers.draining.Load() {
		// In whole milliseconds, like the field on the wire.
		waits := p.pollers.d.load.Waits
		p.maxWait = (waits/4 + time.Duration(rng.Int64N(int64(waits*3/4)))).Truncate(time.Millisecond)
		nc, err := p.dial()
		if err != nil {
			if lost.IsZero() {
				lost = time.Now()
			}
			if time.Since(lost) > scenarioTimeout {
				p.pollers.d.problem("poll: %v", err)
				return
			}
			time.Sleep(20 * time.Millisecond) // a broker is down; another one will lead
			continue
		}
		lost = time.Time{}
		p.mu.Lock()
		p.nc, p.closing, p.ended = nc, false, false
		p.mu.Unlock()
		p.leaderChanged = false

		err = p.poll(nc)

		_ = nc.Close()
		p.mu.Lock()
		p.ended = true
		closed := p.closing
		p.mu.Unlock()
		switch {
		case closed:
			p.pollers.disconnected.Add(uint64(len(p.inFlight)))
		case errors.Is(err, errMoved):
			time.Sleep(10 * time.Millisecond) // the new leader may not know yet that it leads
		case p.pollers.shuttingDown.Load() && len(p.inFlight) == 0:
			return // no poll is pending; a connection that was not accepted yet is reset
		case p.srv.Stopping() && !p.pollers.shuttingDown.Load():
			p.pollers.broken.Add(uint64(len(p.inFlight)))
		default:
			p.pollers.d.problem("poll: %d in flight when the connection ended: %v", len(p.inFlight), err)
			return
		}
		p.inFlight = p.inFlight[:0]
	}
}

// errMoved ends a connection to a broker that no longer leads the partition.
var errMoved = errors.New("the partition has another leader")

// poll keeps depth fetches in flight.
func (p *poller) poll(nc net.Conn) error {
	var frame []byte
	br := bufio.NewReaderSize(nc, 4<<10)
	for {
		// Refill with a single write.
		out := frame[:0]
		for len(p.inFlight) < p.depth && !p.leaderChanged && !p.pollers.draining.Load() {
			if p.correlation%versionsEvery == versionsEvery/2 {
				out = p.appendVersions(out)
			} else {
				out = p.appendFetch(out)
			}
		}
		if len(out) > 0 {
			_ = nc.SetWriteDeadline(time.Now().Add(20 * time.Second))
			if _, err := nc.Write(out); err != nil {
				return err
			}
		}
		frame = out
		if p.leaderChanged && len(p.inFlight) == 0 {
			return errMoved
		}
		// A poll's longest wait, plus ample time for a busy machine.
		_ = nc.SetReadDeadline(time.Now().Add(p.pollers.d.load.Waits + 20*time.Second))
		var err error
		if frame, err = wire.ReadFrame(br, frame, 64<<20); err != nil {
			return err
		}
		if err := p.check(frame, time.Now()); err != nil {
			return err
		}
	}
}

var pollFormatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("polls"))

func (p *poller) appendFetch(dst []byte) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version = p.version
	req.MaxWaitMillis = int32(p.maxWait / time.Millisecond)
	req.MinBytes, req.MaxBytes = 1, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = quietTopic, p.pollers.d.ids[quietTopic]
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.index, p.offset, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	p.correlation++
	p.inFlight = append(p.inFlight, poll{p.correlation, time.Now(), p.maxWait, p.offset, false})
	p.pollers.sent.Add(1)
	return append(dst, pollFormatter.AppendRequest(nil, req, p.correlation)...)
}

// versionsEvery is the number of requests per ApiVersions request.
const versionsEvery = 64

func (p *poller) appendVersions(dst []byte) []byte {
	p.correlation++
	p.inFlight = append(p.inFlight, poll{correlation: p.correlation, isVersions: true})
	p.pollers.sent.Add(1)
	return append(dst, pollFormatter.AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), p.correlation)...)
}

// check checks one response, which was read at the given time.
func (p *poller) check(frame []byte, at time.Time) error {
	ps := p.pollers
	if len(p.inFlight) == 0 {
		return errors.New("an unsolicited answer")
	}
	want := p.inFlight[0]
	if got := int32(binary.BigEndian.Uint32(frame)); got != want.correlation {
		return fmt.Errorf("answer to request %d, but %d is next", got, want.correlation)
	}
	body := frame[4:]
	if want.isVersions {
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(body); err != nil {
			return err
		}
		p.inFlight = append(p.inFlight[:0], p.inFlight[1:]...)
		ps.answered.Add(1)
		return kerr.ErrorForCode(resp.ErrorCode)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = p.version
	if resp.IsFlexible() {
		body = body[1:] // the header's tags: none
	}
	if err := resp.ReadFrom(body); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("answer for other partitions than were asked for")
	}
	sp := &resp.Topics[0].Partitions[0]
	err := errors.Join(kerr.ErrorForCode(resp.ErrorCode), kerr.ErrorForCode(sp.ErrorCode))
	moved := errors.Is(err, kerr.NotLeaderForPartition)
	if err != nil && !moved {
		return err
	}
	// Only now: a response that could not be decoded does not count.
	p.inFlight = append(p.inFlight[:0], p.inFlight[1:]...)
	ps.answered.Add(1)
	if moved {
		ps.leaderChanges.Add(1)
		p.leaderChanged = true
		return nil
	}

	// The broker's wait began after want.sent and ended before at, so the time between the two is
	// at least that wait: a broker that waits the full max wait never seems early, however slow
	// this side is.
	waited := at.Sub(want.sent)
	_, next, err := log.OffsetsOf(sp.RecordBatches)
	switch {
	case err != nil:
		return err
	case next == 0 && p.srv.Stopping() && waited < want.maxWait:
		ps.closing.Add(1)
	case next == 0:
		if waited < want.maxWait {
			ps.early.Add(1)
		}
		ps.empty.Add(1)
	case next <= want.offset:
		ps.early.Add(1) // records, but none that the poll asked for
	default:
		ps.withData.Add(1)
		p.offset = max(p.offset, next)
	}
	return nil
}
