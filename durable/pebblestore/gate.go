package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// gate stands between Pebble and the file system. Pebble ends its process when it cannot write its
// log or its manifest: it panics, sometimes while it holds a lock that a deferred call unlocks
// again, which no recover repairs. A library must not do that to its program. So the first failed
// write closes the gate: the store is notified and answers its callers, and the goroutine that
// wrote never returns to Pebble; nor does any later one. Pebble's memory and those goroutines (at
// most one for each call in progress, and a few of Pebble's own) stay until the process ends.
// Nothing is written after that, so the folder can be opened again.
type gate struct {
	failed func(error)

	mu     sync.Mutex
	armed  bool // the folder is locked; before, errors are returned to Open
	closed bool
	inside int           // operations in progress
	empty  chan struct{} // closed once the gate is closed and inside is 0
}

func newGate(failed func(error)) *gate {
	return &gate{failed: failed, empty: make(chan struct{})}
}

func (g *gate) arm() {
	g.mu.Lock()
	g.armed = true
	g.mu.Unlock()
}

func (g *gate) enter() {
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.inside++
	}
	g.mu.Unlock()
	if closed {
		select {}
	}
}

// leave ends an operation, and does not return if the operation failed.
func (g *gate) leave(err error) error {
	g.mu.Lock()
	g.inside--
	fails := err != nil && g.armed
	first := fails && !g.closed
	if first {
		g.closed = true
	}
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	if first {
		g.failed(err)
	}
	if fails {
		select {}
	}
	return err
}

// close closes the gate for another reason than a failed write.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		if g.inside == 0 {
			close(g.empty)
		}
	}
}

// fs is a file system whose writes pass the gate. Reads do not: their errors are returned to the
// reader.
type fs struct {
	vfs.FS
	gate *gate
	lock io.Closer // of the folder; written by Pebble's Open
}

func (f *fs) Unwrap() vfs.FS { return f.FS }

func (f *fs) Lock(name string) (io.Closer, error) {
	lock, err := f.FS.Lock(name)
	var path *os.PathError
	switch {
	case err == nil:
		f.lock = &onceCloser{Closer: lock}
		f.gate.arm()
		return f.lock, nil
	case errors.As(err, &path): // the lock file could not be created
		return nil, err
	}
	return nil, fmt.Errorf("%w (%w)", ErrInUse, err)
}

func (f *fs) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.gate.enter()
	return f.file(f.FS.Create(name, c))
}

func (f *fs) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f.gate.enter()
	return f.file(f.FS.OpenReadWrite(name, c, opts...))
}

func (f *fs) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.gate.enter()
	return f.file(f.FS.ReuseForWrite(old, name, c))
}

func (f *fs) OpenDir(name string) (vfs.File, error) {
	f.gate.enter()
	return f.file(f.FS.OpenDir(name))
}

func (f *fs) file(inner vfs.File, err error) (vfs.File, error) {
	if err := f.gate.leave(err); err != nil {
		return nil, err
	}
	return &file{inner, f.gate}, nil
}

func (f *fs) Link(old, name string) error {
	f.gate.enter()
	return f.gate.leave(f.FS.Link(old, name))
}

func (f *fs) Rename(old, name string) error {
	f.gate.enter()
	return f.gate.leave(f.FS.Rename(old, name))
}

func (f *fs) MkdirAll(dir string, perm os.FileMode) error {
	f.gate.enter()
	return f.gate.leave(f.FS.MkdirAll(dir, perm))
}

// Remove passes the gate, so that no file is removed once the gate is closed. A failed removal does
// no harm, so it does not close the gate.
func (f *fs) Remove(name string) error {
	f.gate.enter()
	err := f.FS.Remove(name)
	_ = f.gate.leave(nil)
	return err
}

func (f *fs) RemoveAll(name string) error {
	f.gate.enter()
	err := f.FS.RemoveAll(name)
	_ = f.gate.leave(nil)
	return err
}

// file is a file opened for writing.
type file struct {
	vfs.File
	gate *gate
}

func (f *file) Write(p []byte) (n int, err error) {
	f.gate.enter()
	n, err = f.File.Write(p)
	return n, f.gate.leave(err)
}

func (f *file) WriteAt(p []byte, at int64) (n int, err error) {
	f.gate.enter()
	n, err = f.File.WriteAt(p, at)
	return n, f.gate.leave(err)
}

func (f *file) Sync() error {
	f.gate.enter()
	return f.gate.leave(f.File.Sync())
}

func (f *file) SyncData() error {
	f.gate.enter()
	return f.gate.leave(f.File.SyncData())
}

func (f *file) SyncTo(length int64) (full bool, err error) {
	f.gate.enter()
	full, err = f.File.SyncTo(length)
	return full, f.gate.leave(err)
}

func (f *file) Close() error {
	f.gate.enter()
	return f.gate.leave(f.File.Close())
}

// onceCloser closes once: abandon closes the lock too, in case Pebble never does.
type onceCloser struct {
	io.Closer
	once sync.Once
	err  error
}

func (c *onceCloser) Close() error {
	c.once.Do(func() { c.err = c.Closer.Close() })
	return c.err
}
