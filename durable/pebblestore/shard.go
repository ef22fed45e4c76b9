package pebblestore

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// shard is the state of a shard in memory. A goroutine locks it by sending a value to lock.
type shard struct {
	db    *pebble.DB
	index int
	lock  chan struct{} // of capacity 1: a mutex whose waiters can give up

	number    uint64 // see meta
	lanes     [lanes]lane
	dead      uint64
	dropped   uint64
	scheduled uint64 // since the shard was opened; see store.Stats
	leases    leases
	next      store.Millis // due, as the last call left it; 0: no timer waits
	orphans   [][]byte     // keys found on opening that belong to no timer
	last      *commit      // the last commit applied
}

// openShard reads a shard: its record, and its leases, which end at now.
func openShard(db *pebble.DB, index int, now store.Millis) (*shard, error) {
	sh := &shard{db: db, index: index, lock: make(chan struct{}, 1), leases: newLeases()}
	v, err := sh.read(metaKey(nil, index))
	if err != nil {
		return nil, err
	}
	if v == nil {
		return sh, nil
	}
	m, err := decodeMeta(v)
	if err != nil {
		return nil, fmt.Errorf("durable: shard %d: %w", index, err)
	}
	sh.number, sh.dead, sh.dropped = m.number, m.dead, m.dropped
	for i := range sh.lanes {
		sh.lanes[i] = lane{count: m.waiting[i], front: appendPosition(nil, m.fronts[i], "")}
	}
	if err := sh.openLeases(now); err != nil {
		return nil, err
	}
	sh.next = sh.nextDue()
	return sh, nil
}

// openLeases reads the leases. The next claim removes a lease without a timer.
func (sh *shard) openLeases(now store.Millis) error {
	p := prefix(nil, sh.index, kindLease)
	it, err := sh.db.NewIter(&pebble.IterOptions{LowerBound: p, UpperBound: after(p)})
	if err != nil {
		return fmt.Errorf("durable: reading shard %d: %w", sh.index, err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		key := string(it.Key()[len(p):])
		l, err := decodeLease(it.Value())
		if err != nil {
			return fmt.Errorf("durable: shard %d, the lease of %q: %w", sh.index, key, err)
		}
		if l.t, err = sh.readTimer(kindRecord, key); err != nil {
			return err
		}
		if l.successor, err = sh.readTimer(kindSuccessor, key); err != nil {
			return err
		}
		if l.t == nil {
			sh.orphans = append(sh.orphans, append([]byte(nil), it.Key()...))
			continue
		}
		l.end = now
		sh.leases.add(l)
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("durable: reading shard %d: %w", sh.index, err)
	}
	return nil
}

// take returns the next fence or body number. It only grows, even if the clock goes back.
func (sh *shard) take(micros int64) uint64 {
	sh.number = max(sh.number+1, uint64(max(micros, 0)))
	return sh.number
}

func (sh *shard) meta() meta {
	m := meta{number: sh.number, dead: sh.dead, dropped: sh.dropped}
	for i := range sh.lanes {
		m.waiting[i] = sh.lanes[i].count
		m.fronts[i] = sh.lanes[i].bound()
	}
	return m
}

// pending counts the timers that MaxPending bounds.
func (sh *shard) pending() int {
	n := len(sh.leases.byKey) + sh.leases.waiting
	for i := range sh.lanes {
		n += int(sh.lanes[i].count)
	}
	return n
}

// read returns a copy of a value, nil if there is none.
func (sh *shard) read(key []byte) ([]byte, error) { return read(sh.db, sh.index, key) }

func read(r pebble.Reader, shard int, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("durable: reading shard %d: %w", shard, err)
	}
	v = append([]byte{}, v...)
	return v, closer.Close()
}

// readTimer returns a timer, nil if there is none.
func (sh *shard) readTimer(kind byte, key string) (*timer, error) {
	return readTimer(sh.db, sh.index, kind, key)
}

func readTimer(r pebble.Reader, shard int, kind byte, key string) (*timer, error) {
	var buf [maxPrefix + store.MaxKey]byte
	v, closer, err := r.Get(timerKey(buf[:0], shard, kind, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("durable: reading shard %d: %w", shard, err)
	}
	t, err := decodeTimer(key, v)
	if closed := closer.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, fmt.Errorf("durable: shard %d, timer %q: %w", shard, key, err)
	}
	return t, nil
}

func (sh *shard) readBody(t *timer) ([]byte, error) { return readBody(sh.db, sh.index, t) }

func readBody(r pebble.Reader, shard int, t *timer) ([]byte, error) {
	if t.body.number == 0 {
		return append([]byte{}, t.body.inline...), nil
	}
	b, err := read(r, shard, bodyKey(nil, shard, t.body.number))
	if err == nil && len(b) != t.body.length {
		err = fmt.Errorf("durable: shard %d, the body of timer %q: %w", shard, t.key, errRecord)
	}
	return b, err
}
