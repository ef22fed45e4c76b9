package readme

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/stretchr/testify/require"
)

type build struct {
	id   string
	done atomic.Bool
}

type builder struct {
	builds *purgatory.Purgatory[string]
}

// README
// wait waits until both builds are done, for a minute at most.
func (b *builder) wait(ctx context.Context, one, other *build) error {
	return b.builds.Await(ctx, time.Minute, func() bool {
		return one.done.Load() && other.done.Load()
	}, one.id, other.id)
}

func (b *builder) finish(x *build) {
	x.done.Store(true)              // first the change,
	b.builds.CheckAndComplete(x.id) // then the call
}

// end

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := purgatory.New[string](purgatory.Options{})
		require.NoError(t, err)
		b, one, other := &builder{p}, &build{id: "one"}, &build{id: "other"}
		go func() {
			b.finish(other)
			synctest.Wait()
			b.finish(one)
		}()
		require.NoError(t, b.wait(t.Context(), one, other))
		require.NoError(t, p.Shutdown(t.Context()))
	})
}

// topic is a log of records.
type topic struct {
	name    string
	records atomic.Int64
}

func (p *topic) size() int64 { return p.records.Load() }

type broker struct {
	fetches *purgatory.Purgatory[string]
}

// README
type fetch struct {
	topics  []*topic
	atLeast int64
	reply   func(purgatory.Outcome)
}

// TryComplete is called again for each CheckAndComplete of one of the keys, by one
// goroutine at a time.
func (f *fetch) TryComplete() bool {
	sum := int64(0)
	for _, t := range f.topics {
		sum += t.size()
	}
	return sum >= f.atLeast
}

// Complete is called once, whatever ends the fetch.
func (f *fetch) Complete(o purgatory.Outcome, _ error) { f.reply(o) }

func (b *broker) fetch(client context.Context, f *fetch, maxWait time.Duration) error {
	var keys []string
	for _, t := range f.topics {
		keys = append(keys, t.name)
	}
	// f also ends when the client hangs up, and after maxWait.
	_, err := b.fetches.TryCompleteElseWatch(client, f, maxWait, keys...)
	return err
}

// end

func TestFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := purgatory.New[string](purgatory.Options{})
		require.NoError(t, err)
		b := &broker{p}
		first, second := &topic{name: "first"}, &topic{name: "second"}
		replies := make(chan purgatory.Outcome, 1)
		f := &fetch{[]*topic{first, second}, 3, func(o purgatory.Outcome) { replies <- o }}

		require.NoError(t, b.fetch(t.Context(), f, time.Second))
		first.records.Add(2)
		require.Zero(t, p.CheckAndComplete("first"))
		second.records.Add(1)
		require.Equal(t, 1, p.CheckAndComplete("second"))
		require.Equal(t, purgatory.Completed, <-replies)

		f.atLeast = 4
		require.NoError(t, b.fetch(t.Context(), f, time.Second))
		require.Equal(t, purgatory.Expired, <-replies)
		client, hangUp := context.WithCancel(t.Context())
		require.NoError(t, b.fetch(client, f, time.Second))
		hangUp()
		require.Equal(t, purgatory.Cancelled, <-replies)
		require.NoError(t, p.Shutdown(t.Context()))
	})
}
