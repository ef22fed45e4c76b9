package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/cluster"
)

// With -serve, each line of standard input is a control command. Only the user who started the
// process can write there.

const controlHelp = `commands:
  status              who leads what, and what waits
  stop N | start N    shut broker N down, bring it back
  kill N              end it without a word
  pause N | resume N  hold up all that it does
  slow N DURATION     make each step of it take longer; 0s for full speed
  cut N M | heal N M  the link between two brokers
`

// runCommands executes commands until the input ends.
func runCommands(c *cluster.Cluster, in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		if err := command(c, words, out); err != nil {
			_, _ = fmt.Fprintf(out, "broker: %v\n%s", err, controlHelp)
		}
	}
}

func command(c *cluster.Cluster, words []string, out io.Writer) error {
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
		c.WriteStatus(out)
		return nil
	}
	id, err := brokerID(args[0])
	if err != nil {
		return err
	}
	switch name {
	case "stop":
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		err = c.Stop(ctx, id)
	case "start":
		err = c.Start(id)
	case "kill":
		err = c.Kill(id)
	case "pause":
		err = c.Pause(id)
	case "resume":
		err = c.Resume(id)
	case "slow":
		var by time.Duration
		if by, err = time.ParseDuration(args[1]); err == nil {
			err = c.Slow(id, by)
		}
	case "cut", "heal":
		var other int32
		if other, err = brokerID(args[1]); err != nil {
			return err
		}
		if name == "cut" {
			err = c.Cut(id, other)
		} else {
			err = c.Heal(id, other)
		}
	}
	if err == nil {
		_, _ = fmt.Fprintf(out, "broker: done: %s\n", strings.Join(words, " "))
	}
	return err
}

func brokerID(s string) (int32, error) {
	id, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("broker %q: they are numbered from 0 on", s)
	}
	return int32(id), nil
}
