package tour

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	holdUp  = 300 * time.Millisecond // at most
	lateBy  = 3 * time.Second        // at most; workers give up a call after a quarter of their lease
	maxHeld = 1 << 20                // bytes of a connection that are delivered late
)

// network is a faulty proxy between the timerds and one server. It delays requests and cuts
// connections. It delivers a request late, after the client has given it up and sent it again or
// sent another one. It delivers all requests of some connections twice.
type network struct {
	at       string // host:port
	server   string
	listener net.Listener
	seed     uint64
	calm     time.Duration // mean time until a fault of a connection

	mu     sync.Mutex
	conns  map[net.Conn]bool
	over   chan struct{} // closed when late requests must be delivered at once
	gone   bool          // set when all connections are cut
	served sync.WaitGroup
	counts *networkCounts
}

// networkCounts count the faults of all networks of a tour.
type networkCounts struct {
	cut, late, twice atomic.Int64 // connections
}

// newNetwork returns a network for an address. start opens the listener.
func newNetwork(at, server string, seed uint64, calm time.Duration, counts *networkCounts) *network {
	return &network{at: at, server: server, seed: seed, calm: calm, conns: make(map[net.Conn]bool), over: make(chan struct{}), counts: counts}
}

func (n *network) start() error {
	l, err := net.Listen("tcp", n.at)
	if err != nil {
		return err
	}
	n.listener = l
	n.served.Go(func() {
		for i := uint64(0); ; i++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			rng := rand.New(rand.NewPCG(n.seed, i))
			n.served.Go(func() { n.serve(client, rng) })
		}
	})
	return nil
}

// settle delivers the late requests at once, and returns when all are delivered. No client is
// connected any more.
func (n *network) settle() {
	close(n.over)
	_ = n.listener.Close()
	n.served.Wait()
}

// cutAll cuts all connections and closes the listener.
func (n *network) cutAll() {
	n.mu.Lock()
	n.gone = true
	for c := range n.conns {
		_ = c.Close()
	}
	n.mu.Unlock()
	_ = n.listener.Close()
}

// open registers a connection. The returned function closes it.
func (n *network) open(c net.Conn) (end func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = true
	if n.gone {
		_ = c.Close()
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, c)
		_ = c.Close()
	}
}

func (n *network) serve(client net.Conn, rng *rand.Rand) {
	defer n.open(client)()
	server, err := net.Dial("tcp", n.server)
	if err != nil {
		return // the server is down: the client's connection is cut
	}
	defer n.open(server)()
	n.served.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	send := func(b []byte) error { _, err := server.Write(b); return err }
	if rng.IntN(4) == 0 {
		if second, end := n.second(rng); end != nil {
			defer end()
			first := send
			send = func(b []byte) error { second(b); return first(b) }
			n.counts.twice.Add(1)
		}
	}
	wait := func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(n.calm)) }
	next := time.Now().Add(wait())
	buf := make([]byte, 64<<10)
	for {
		k, err := client.Read(buf)
		if err != nil {
			return
		}
		if time.Now().After(next) {
			next = time.Now().Add(wait())
			switch dice := rng.IntN(8); {
			case dice < 2:
				n.counts.cut.Add(1)
				return
			case dice < 4:
				time.Sleep(time.Duration(rng.Int64N(int64(holdUp))))
			default: // rarely without a cut, because then all callers of a shard wait
				n.comeLate(client, server, buf[:k], dice < 7, rng)
				return
			}
		}
		if send(buf[:k]) != nil {
			return
		}
	}
}

// comeLate delivers, after a delay, the data that was read and the data that the client sends until
// it closes. If cut is set, comeLate closes the client's connection at once; otherwise the client
// waits for a reply until it gives up or the delay ends.
func (n *network) comeLate(client, server net.Conn, first []byte, cut bool, rng *rand.Rand) {
	n.counts.late.Add(1)
	held := bytes.NewBuffer(bytes.Clone(first))
	until := time.Now().Add(time.Duration(rng.Int64N(int64(lateBy))))
	if cut {
		_ = client.Close()
	} else {
		_ = client.SetReadDeadline(until)
		_, _ = io.Copy(held, io.LimitReader(client, maxHeld))
		_ = client.Close()
	}
	select {
	case <-time.After(time.Until(until)):
	case <-n.over:
	}
	_, _ = server.Write(held.Bytes())
	rest(server)
}

// rest closes the sending side of a connection, and waits until the server closes its side.
func rest(server net.Conn) {
	_ = server.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, server)
}

// second returns a function that delivers requests a second time, a little later over a connection
// of its own, and drops the replies.
func (n *network) second(rng *rand.Rand) (send func([]byte), end func()) {
	server, err := net.Dial("tcp", n.server)
	if err != nil {
		return nil, nil
	}
	type parcel struct {
		at   time.Time
		data []byte
	}
	parcels := make(chan parcel, 1024)
	closeIt := n.open(server)
	n.served.Go(func() { _, _ = io.Copy(io.Discard, server) })
	n.served.Go(func() {
		defer closeIt()
		for p := range parcels {
			select {
			case <-time.After(time.Until(p.at)):
			case <-n.over:
			}
			_, _ = server.Write(p.data)
		}
		rest(server)
	})
	by := time.Duration(rng.Int64N(int64(holdUp)))
	end = func() { close(parcels) }
	full := false // the server is paused: stop for good, because skipping parts would mix requests
	send = func(b []byte) {
		if full {
			return
		}
		select {
		case parcels <- parcel{time.Now().Add(by), bytes.Clone(b)}:
		default:
			full = true
		}
	}
	return send, end
}
