package pebblestore

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Options configure a store. The zero value is a good default.
type Options struct {
	// Shards is the number of shards, 1 to store.MaxShards. It is fixed when the folder is created;
	// opening with another number returns store.ErrShards. Default 0: the folder's number, 16 in a
	// new one.
	Shards int

	// Limits apply to each shard.
	Limits store.Limits

	// Logger logs errors and nothing else. Default: slog.Default.
	Logger *slog.Logger

	// CallTimeout bounds each call whose context has no deadline, at least 1 ms. It matters when
	// the disk hangs. Default 30 s.
	CallTimeout time.Duration

	// CacheBytes is how much of the tables on disk is kept in memory, in bytes, at least 1 MiB.
	// Default 64 MiB. While only one of two MemTables is in use, the cache is larger by
	// MemTableBytes.
	CacheBytes int64

	// MemTableBytes is how much is written to the log, and kept in memory, before it becomes a
	// table on disk, in bytes, 1 MiB to 1 GiB. Up to four of these wait for the disk; opening after
	// a crash reads that much again. The larger, the more timers come and go without reaching a
	// table. Default 32 MiB.
	MemTableBytes int64

	// MinFree is the free disk space, in bytes, that Schedule needs, and SwapPlans if it adds
	// something. With less, they return store.ErrFull, and all other calls still work. A full disk
	// closes the store. Default 0: 128 MiB; below 0: no bound.
	MinFree int64

	fs     vfs.FS
	now    func() time.Time
	misuse func(error) // called when a single deletion did not remove exactly one key
}

const defaultShards = 16

func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Limits, err = o.Limits.WithDefaults(); err != nil {
		return o, err
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 30 * time.Second
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 32 << 20
	}
	if o.MinFree == 0 {
		o.MinFree = 128 << 20
	}
	if o.fs == nil {
		o.fs = vfs.Default
	}
	if o.now == nil {
		o.now = time.Now
	}
	switch {
	case o.Shards < 0 || o.Shards > store.MaxShards:
		return o, fmt.Errorf("durable: Options.Shards is %d, must be 1 to %d, or 0 for the default", o.Shards, store.MaxShards)
	case o.CallTimeout < time.Millisecond:
		return o, fmt.Errorf("durable: Options.CallTimeout is %v, must be 1ms or more, or 0 for 30s", o.CallTimeout)
	case o.CacheBytes < 1<<20:
		return o, fmt.Errorf("durable: Options.CacheBytes is %d, must be %d or more, or 0 for the default", o.CacheBytes, 1<<20)
	case o.MemTableBytes < 1<<20 || o.MemTableBytes > 1<<30:
		return o, fmt.Errorf("durable: Options.MemTableBytes is %d, must be %d to %d, or 0 for the default", o.MemTableBytes, 1<<20, 1<<30)
	}
	return o, nil
}

// pebble returns Pebble's options.
func (o Options) pebble(f vfs.FS, log *logger) *pebble.Options {
	p := &pebble.Options{
		FS:                 f,
		Logger:             log,
		FormatMajorVersion: pebble.FormatWALSyncChunks,
		// Pebble subtracts the memory of its MemTables from the cache: one in use, and usually a
		// second, because it allocates the next one while it writes the last one to disk.
		// Without this addition, a cache of the default size would often be empty.
		CacheSize:                   o.CacheBytes + 2*o.MemTableBytes,
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       1000,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { log.Errorf("background: %v", err) },
			DataCorruption:  func(i pebble.DataCorruptionInfo) { log.failed(fmt.Errorf("%s is damaged: %w", i.Path, i.Details)) },
			PossibleAPIMisuse: func(i pebble.PossibleAPIMisuseInfo) {
				err := fmt.Errorf("%s of %q", i.Kind, i.UserKey)
				log.Errorf("%v", err)
				if o.misuse != nil {
					o.misuse(err)
				}
			},
		},
	}
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most scheduled keys are new
	}
	return p
}

// logger is Pebble's logger.
type logger struct {
	*slog.Logger
	failed func(error)
}

func (l *logger) Infof(string, ...any) {}

func (l *logger) Errorf(format string, args ...any) {
	l.Error("durable: pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf is called where Pebble cannot continue, so it does not return.
func (l *logger) Fatalf(format string, args ...any) {
	l.failed(fmt.Errorf("pebble: "+format, args...))
	select {}
}
