package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
)

// ledger is a file to which a process of the tour appends its events, each as a line of JSON by one
// write(2), so that written events survive a kill. A kill can cut a write short at the end of a
// page of the file. The next process then ends that line with the word torn, and readers ignore it,
// as if the kill had come before the write.
type ledger struct {
	mu sync.Mutex
	f  *os.File
}

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := terminateTorn(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &ledger{f: f}, nil
}

// torn is the end of an incomplete line.
const torn = " torn"

// terminateTorn ends the last line, if it is incomplete.
func terminateTorn(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString(torn + "\n")
	return err
}

// write appends an event. If it fails, the tour is worthless, so it ends the process.
func (l *ledger) write(e event) {
	line := append(e.line(), '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.f.Write(line); err != nil {
		panic(err)
	}
}

// tail reads the new events of a ledger.
type tail struct {
	path    string
	offset  int64
	partial []byte // a line without its end so far
}

// events calls f with each new event.
func (t *tail) events(f func(event) error) error {
	file, err := os.Open(t.path)
	if os.IsNotExist(err) {
		return nil // its process has not created it yet
	}
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := file.ReadAt(buf, t.offset)
		t.offset += int64(n)
		t.partial = append(t.partial, buf[:n]...)
		for {
			line, rest, ok := bytes.Cut(t.partial, []byte("\n"))
			if !ok {
				break
			}
			t.partial = rest
			if bytes.HasSuffix(line, []byte(torn)) {
				continue
			}
			var e event
			err := json.Unmarshal(line, &e)
			if err == nil {
				err = f(e)
			}
			if err != nil {
				return fmt.Errorf("%s: line %q: %w", t.path, line, err)
			}
		}
		t.partial = bytes.Clone(t.partial)
		if err != nil { // end of file
			return nil
		}
	}
}
