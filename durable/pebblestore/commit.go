package pebblestore

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// commit is a batch that was applied and may not be synced yet.
type commit struct {
	batch  *pebble.Batch
	synced chan struct{} // closed when it is
}

// apply writes the batch, with the shard's record, into Pebble's log and memory, where the shard's
// next call sees it, and sets sh.last to the new commit. The caller waits for sh.last once it has
// unlocked the shard, even if this call wrote nothing: its answer may depend on the previous call's
// write. If the store fails, apply may never return.
func (c *change) apply() error {
	sh := c.sh
	switch {
	case c.batch == nil:
		return nil
	case c.batch.Empty():
		return c.batch.Close()
	}
	m := sh.meta()
	c.key, c.value = metaKey(c.key[:0], sh.index), appendMeta(c.value[:0], &m)
	c.set(c.key, c.value)
	if err := sh.db.ApplyNoSyncWait(c.batch, pebble.Sync); err != nil {
		return err
	}
	sh.last = &commit{batch: c.batch, synced: make(chan struct{})}
	return nil
}

// sync waits until a commit of this call is on disk. It is called once.
func (k *commit) sync() error {
	if err := k.batch.SyncWait(); err != nil {
		return err
	}
	close(k.synced)
	batch := k.batch
	k.batch = nil
	return batch.Close()
}

// horizon returns when the shard has work next, and announces that time if it is earlier than
// before.
func (c *change) horizon() store.Horizon {
	due := c.sh.nextDue()
	if due != 0 && (c.sh.next == 0 || due < c.sh.next) {
		c.events = append(c.events, store.Event{Kind: store.Earlier, Shard: c.sh.index, Due: due})
	}
	c.sh.next = due
	return store.Horizon{Now: c.at.now, NextDue: due, NextLeaseEnd: c.sh.leases.nextEnd()}
}
