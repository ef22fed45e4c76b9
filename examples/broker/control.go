package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// The control of -serve: a line of standard input is a command. Only who has
// started the process can write there.

const controlHelp = `commands:
  status              who leads what, and what waits
  stop N | start N    shut broker N down, bring it back
  kill N              end it without a word
  pause N | resume N  hold up all that it does
  slow N DURATION     make each step of it take longer; 0s for full speed
  cut N M | heal N M  the link between two brokers
`

// obey carries out commands until the input ends.
func (c *cluster) obey(in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		if err := c.command(words, out); err != nil {
			_, _ = fmt.Fprintf(out, "broker: %v\n%s", err, controlHelp)
		}
	}
}

func (c *cluster) command(words []string, out io.Writer) error {
	arity := map[string]int{"status": 0, "help": 0, "stop": 1, "start": 1, "kill": 1, "pause": 1, "resume": 1, "slow": 2, "cut": 2, "heal": 2}
	name, args := words[0], words[1:]
	if n, ok := arity[name]; !ok || n != len(args) {
		return fmt.Errorf("%q is not a command, or has another number of arguments", strings.Join(words, " "))
	}
	switch name {
	case "help":
		_, _ = io.WriteString(out, controlHelp)
		return nil
	case "status":
		c.status(out)
		return nil
	}
	n, err := c.nodeNamed(args[0])
	if err != nil {
		return err
	}
	switch name {
	case "stop":
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		err = n.stop(ctx)
	case "start":
		err = n.start()
	case "kill":
		err = n.kill()
	case "pause":
		n.gate.pause()
	case "resume":
		n.gate.resume()
	case "slow":
		var by time.Duration
		if by, err = time.ParseDuration(args[1]); err == nil && (by < 0 || by > time.Minute) {
			err = fmt.Errorf("a step takes from 0s to 1m longer, not %v", by)
		}
		if err == nil {
			n.gate.slow(by)
		}
	case "cut", "heal":
		var other *node
		if other, err = c.nodeNamed(args[1]); err != nil {
			return err
		}
		if name == "cut" {
			c.links.sever(n.id, other.id)
		} else {
			c.links.heal(n.id, other.id)
		}
	}
	if err == nil {
		_, _ = fmt.Fprintf(out, "broker: done: %s\n", strings.Join(words, " "))
	}
	return err
}

func (c *cluster) nodeNamed(s string) (*node, error) {
	id, err := strconv.Atoi(s)
	if err != nil || id < 0 || id >= len(c.nodes) {
		return nil, fmt.Errorf("broker %q: they are numbered from 0 to %d", s, len(c.nodes)-1)
	}
	return c.nodes[id], nil
}

func (c *cluster) status(out io.Writer) {
	img := c.controller.image()
	for _, n := range c.nodes {
		s := n.server()
		if s == nil {
			_, _ = fmt.Fprintf(out, "broker %d at %s: stopped\n", n.id, n.addr)
			continue
		}
		_, _ = fmt.Fprintf(out, "broker %d at %s: alive %v; waiting: %d fetches, %d produces, %d deletions\n",
			n.id, n.addr, img.lives(n.id), s.fetches.Delayed(), s.produces.Delayed(), s.deletes.Delayed())
	}
	for _, t := range img.all() {
		for i, a := range t.partitions {
			_, _ = fmt.Fprintf(out, "%s/%d: leader %d (epoch %d), in sync %v of %v\n", t.name, i, a.leader, a.epoch, a.isr, a.replicas)
		}
	}
}
