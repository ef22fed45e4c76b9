package selfcheck

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Progress prints messages while a program runs, each with the time since NewProgress, and on a
// terminal a bar below them. It is safe for concurrent use.
type Progress struct {
	out      io.Writer
	began    time.Time
	terminal bool

	mu    sync.Mutex
	drawn bool // guarded by mu: the last line is a bar
}

const (
	barWidth  = 30
	barPeriod = 200 * time.Millisecond

	clearLine = "\r\x1b[K"
)

// NewProgress returns a Progress whose clock starts now.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{out: out, began: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// Printf prints a message.
func (p *Progress) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	fmt.Fprintf(p.out, "%6.2f s  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// Bar draws a bar five times a second until stop is called. stop removes the bar and returns after
// the last call of measure. measure returns the progress, from 0 to 1, and a description of it.
// Without a terminal Bar draws nothing and does not call measure.
func (p *Progress) Bar(measure func() (done float64, text string)) (stop func()) {
	if !p.terminal {
		return func() {}
	}
	stopped := make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		t := time.NewTicker(barPeriod)
		defer t.Stop()
		for {
			p.draw(measure())
			select {
			case <-stopped:
				return
			case <-t.C:
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stopped)
		drawing.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clearLocked()
	})
}

func (p *Progress) draw(done float64, text string) {
	full := int(barWidth * min(max(done, 0), 1))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	fmt.Fprintf(p.out, "%6.2f s  [%s%s] %s", time.Since(p.began).Seconds(),
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), text)
	p.drawn = true
}

// clearLocked removes the bar. The caller holds p.mu.
func (p *Progress) clearLocked() {
	if p.drawn {
		_, _ = io.WriteString(p.out, clearLine)
		p.drawn = false
	}
}
