package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// pollers are the clients. Each follows a room with one poll at a time, at one node or, when that
// node has died, at another.
type pollers struct {
	clients   [2]*http.Client // over HTTP/1.1, and over HTTP/2
	running   sync.WaitGroup
	inFlight  atomic.Int64 // polls begun and not answered
	stopping  atomic.Bool  // begin no more polls
	faultFree atomic.Bool  // no faults: wake-up latencies are recorded

	mu    sync.Mutex
	nodes []target // guarded by mu: the live ones

	polls, answered, moved, early, invalid, unanswered atomic.Int64

	all        []*poller
	firstError atomic.Pointer[error] // of the polls that were not answered
}

func (ps *pollers) noteError(err error) { ps.firstError.CompareAndSwap(nil, &err) }

// target is a node from its clients' point of view.
type target struct {
	id  int
	url string
}

type poller struct {
	room   string
	client *http.Client
	rng    *rand.Rand

	mu         sync.Mutex
	seen       []int           // guarded by mu: the numbers of the events, in order of arrival
	wakes      []time.Duration // guarded by mu: from publication to arrival, at the publishing node
	crossWakes []time.Duration // guarded by mu: likewise, at another node
}

// httpClient speaks one of the two protocols: HTTP/1.1 with a connection for each poll, or HTTP/2
// with a few connections that have as many streams as a node allows.
func httpClient(http2 bool) *http.Client {
	t := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: 1 << 20}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetUnencryptedHTTP2(http2)
	if http2 {
		t.MaxConnsPerHost = 64 // otherwise each poll during the first dial would dial too
	}
	return &http.Client{Transport: t}
}

func newPollers(nodes []target) *pollers {
	return &pollers{nodes: nodes, clients: [2]*http.Client{httpClient(false), httpClient(true)}}
}

// start starts count pollers in rooms of five, the first oldProtocol of them over HTTP/1.1.
func (ps *pollers) start(ctx context.Context, count, oldProtocol int, seed uint64) {
	for i := range count {
		p := &poller{room: roomName(i / perRoom), client: ps.clients[0], rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		if i >= oldProtocol {
			p.client = ps.clients[1]
		}
		ps.all = append(ps.all, p)
		ps.running.Go(func() { ps.poll(ctx, p, i) })
	}
}

// perRoom is the number of pollers of each room.
const perRoom = 5

func roomName(i int) string { return "room-" + strconv.Itoa(i) }

// removeNode removes a node that has died.
func (ps *pollers) removeNode(t target) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.nodes = slices.DeleteFunc(slices.Clone(ps.nodes), func(other target) bool { return other == t })
}

func (ps *pollers) isLive(t target) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Contains(ps.nodes, t)
}

func (ps *pollers) node(n int) target {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.nodes[n%len(ps.nodes)]
}

// poll polls until the nodes shut down.
func (ps *pollers) poll(ctx context.Context, p *poller, n int) {
	at, from := ps.node(n), int64(0)
	for ctx.Err() == nil {
		wait := time.Duration(20+p.rng.IntN(20)) * time.Second
		ps.inFlight.Add(1)
		if ps.stopping.Load() {
			ps.inFlight.Add(-1)
			return
		}
		status, events, took, err := p.poll(ctx, at.url, from, wait)
		ps.inFlight.Add(-1)
		if ctx.Err() != nil {
			return
		}
		ps.polls.Add(1)
		moved := false
		switch {
		case err != nil:
			if ps.isLive(at) {
				ps.unanswered.Add(1)
				ps.noteError(err)
			}
			if ps.stopping.Load() {
				return
			}
			moved = true
		case status == http.StatusOK:
			ps.answered.Add(1)
			if len(events) == 0 || events[0].Offset < from {
				ps.early.Add(1)
			}
			for _, e := range events {
				from = e.Offset + 1
			}
			ps.record(p, at, events, took)
		case status == http.StatusNoContent:
			ps.answered.Add(1)
			if took < wait {
				ps.early.Add(1)
			}
		case status == http.StatusServiceUnavailable:
			ps.answered.Add(1)
			if ps.stopping.Load() {
				return
			}
			moved = true
		default:
			ps.invalid.Add(1)
			moved = true
		}
		if moved {
			ps.moved.Add(1)
			n++
			at = ps.node(n)
			// Not all at once: the next node would have to accept all of them at the same time.
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(p.rng.Int64N(int64(time.Second)))):
			}
		}
	}
}

func (p *poller) poll(ctx context.Context, url string, from int64, wait time.Duration) (status int, events []event, took time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/rooms/%s?from=%d", url, p.room, from), nil)
	if err != nil {
		return 0, nil, 0, err
	}
	req.Header.Set("Prefer", fmt.Sprintf("wait=%d", wait/time.Second))
	began := time.Now()
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		err = json.NewDecoder(resp.Body).Decode(&events)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be reused
	return resp.StatusCode, events, time.Since(began), err
}

// record records the events of a response, and their wake-up latency.
func (ps *pollers) record(p *poller, at target, events []event, took time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		number, err := strconv.Atoi(e.Text)
		if err != nil {
			ps.invalid.Add(1)
			continue
		}
		p.seen = append(p.seen, number)
		woke := now.Sub(time.UnixMicro(e.Sent))
		if woke >= took || !ps.faultFree.Load() {
			continue // published before the poll began
		}
		if e.Node == at.id {
			p.wakes = append(p.wakes, woke)
		} else {
			p.crossWakes = append(p.crossWakes, woke)
		}
	}
}
