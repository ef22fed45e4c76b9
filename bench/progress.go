package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on standard error if that is a terminal, and otherwise one line
// for each workload.
type progress struct {
	mu   sync.Mutex
	bar  *progressbar.ProgressBar
	last string
}

func (p *progress) begin(total int) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	p.bar = progressbar.NewOptions(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

func (p *progress) at(j Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%-3s %-12s %-28s", j.Workload, j.Impl, j.Params))
		return
	}
	if p.last != j.Workload {
		p.last = j.Workload
		warn("%s: %s", j.Workload, workloadNamed(j.Workload).title)
	}
}

func (p *progress) add() { p.onBar(func(b *progressbar.ProgressBar) error { return b.Add(1) }) }

// clear removes the bar from the terminal before other output.
func (p *progress) clear() { p.onBar((*progressbar.ProgressBar).Clear) }

func (p *progress) end() { p.onBar((*progressbar.ProgressBar).Finish) }

func (p *progress) onBar(do func(*progressbar.ProgressBar) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = do(p.bar)
	}
}
