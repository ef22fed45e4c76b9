package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// pollClients are the clients of W15: each has one poll at a time at the server, for its own
// key.
type pollClients struct {
	url      string
	protocol int          // 1 or 2: HTTP/1.1 or HTTP/2
	polls    *http.Client // shared by all clients
	control  *http.Client // publishes, and asks the server for statistics

	ctx    context.Context // done when all hang up
	cancel context.CancelFunc
	*responses
}

func newPollClients(addr string, n, protocol int) *pollClients {
	polls := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: n}
	polls.Protocols.SetHTTP1(protocol == 1)
	if polls.Protocols.SetUnencryptedHTTP2(protocol == 2); protocol == 2 {
		polls.MaxConnsPerHost = 64 // see park
	}
	cs := &pollClients{
		url: "http://" + addr, protocol: protocol,
		polls:     &http.Client{Transport: polls},
		control:   &http.Client{Transport: &http.Transport{}, Timeout: responseTimeout},
		responses: newResponses(n),
	}
	cs.ctx, cs.cancel = context.WithCancel(context.Background())
	return cs
}

// close closes all connections.
func (cs *pollClients) close() {
	cs.cancel()
	cs.readers.Wait()
	cs.polls.CloseIdleConnections()
	cs.control.CloseIdleConnections()
}

// park starts n polls, and returns when all are parked. It starts no more at once than the
// server can accept, and at first only one: over HTTP/2, requests without an existing connection
// each open their own.
func (cs *pollClients) park(n int) error {
	const most = 64
	started, parked := 0, int64(0)
	for end := time.Now().Add(responseTimeout); parked < int64(n); {
		for ahead := min(most, int(parked)+1); started < min(n, int(parked)+ahead); started++ {
			key := started
			cs.read(key, func() ([]byte, error) { return cs.poll(key) })
		}
		time.Sleep(time.Millisecond)
		now, err := cs.statistic("parked")
		if err != nil {
			return err
		}
		select {
		case got := <-cs.received: // of a poll that may be parked again by now
			return errors.Join(errors.New("a poll was answered before there was an event"), got.err)
		default:
		}
		if now > parked {
			parked, end = now, time.Now().Add(responseTimeout)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d polls of %d are parked, and no more since %v", parked, n, responseTimeout)
		}
	}
	return nil
}

// poll polls for a key, until close.
func (cs *pollClients) poll(key int) ([]byte, error) {
	req, err := http.NewRequestWithContext(cs.ctx, http.MethodGet, cs.url+"/polls/"+strconv.Itoa(key), nil)
	must(err)
	req.Header.Set("Prefer", "wait="+strconv.Itoa(int(pollWait/time.Second)))
	return cs.do(cs.polls, req, cs.protocol)
}

// do makes a request and returns the body of the response.
func (cs *pollClients) do(client *http.Client, req *http.Request, protocol int) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.ProtoMajor != protocol) {
		err = fmt.Errorf("%s %s: %s over %s", req.Method, req.URL.Path, resp.Status, resp.Proto)
	}
	return body, err
}

// statistic returns a statistic of the server.
func (cs *pollClients) statistic(name string) (int64, error) {
	req, err := http.NewRequest(http.MethodGet, cs.url+"/"+name, nil)
	if err != nil {
		return 0, err
	}
	body, err := cs.do(cs.control, req, 1)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(body), 10, 64)
}

// wake publishes an event and returns the time from there until the response to its poll has
// been read.
func (cs *pollClients) wake(key int) (time.Duration, error) {
	req, err := http.NewRequest(http.MethodPost, cs.url+"/events/"+strconv.Itoa(key), nil)
	if err != nil {
		return 0, err
	}
	event, err := cs.do(cs.control, req, 1)
	if err != nil {
		return 0, err
	}
	got, err := cs.await(key)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(got.body, event) {
		return 0, fmt.Errorf("a poll was answered with event %q, and not %q", got.body, event)
	}
	published, err := strconv.ParseInt(string(event), 10, 64)
	if err != nil {
		return 0, err
	}
	took := time.Duration(got.at.UnixNano() - published) // by one machine's clock, in two processes
	if took <= 0 {
		return 0, errors.New("the machine's clock was set back meanwhile")
	}
	return took, nil
}
