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
	lateBy  = 3 * time.Second        // at most; a worker has given up a call after a quarter of its lease
	maxHeld = 1 << 20                // bytes of a connection that are delivered late
)

// network stands between the timerds and one server, and does what networks do. It holds
// requests up and cuts connections. It lets a request come late, when its client has
// given it up and has asked again or for something else. And it lets all requests of some
// connections come twice.
type network struct {
	at       string // host:port
	server   string
	listener net.Listener
	seed     uint64
	calm     time.Duration // the mean time of a connection until something happens to it

	mu     sync.Mutex
	conns  map[net.Conn]bool
	over   chan struct{} // closed when what is late comes at once
	gone   bool          // all connections are cut
	served sync.WaitGroup
	counts *networkCounts
}

// networkCounts are what all networks of a tour did.
type networkCounts struct {
	cut, late, twice atomic.Int64 // connections
}

// newNetwork takes an address at once, and connections from start on.
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

// settle lets what is late come now, and returns once all of it has. No client is
// connected any more.
func (n *network) settle() {
	close(n.over)
	_ = n.listener.Close()
	n.served.Wait()
}

// cutAll ends the network.
func (n *network) cutAll() {
	n.mu.Lock()
	n.gone = true
	for c := range n.conns {
		_ = c.Close()
	}
	n.mu.Unlock()
	_ = n.listener.Close()
}

// open keeps a connection, to be closed by the function that it returns.
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
		return // it is down, and the client sees its connection cut
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
			default: // seldom in silence, for which all callers of a shard wait
				n.comeLate(client, server, buf[:k], dice < 7, rng)
				return
			}
		}
		if send(buf[:k]) != nil {
			return
		}
	}
}

// comeLate delivers what was read, and what else comes from the client until it closes,
// after a while. If cut is set the client sees its connection cut at once; else it
// waits for a reply as long as it wants.
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

// rest lets a server end its side of a connection, on which nothing more comes.
func rest(server net.Conn) {
	_ = server.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, server)
}

// second returns a function that delivers requests once more, over a connection of its
// own and a little later, and drops the replies.
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
	full := false // for a server that is paused: no request may be put together of parts
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
