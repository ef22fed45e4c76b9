package clients

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// A program drives one client. It is run with one of these command lines. If something fails, it
// prints a message and exits with a status other than 0:
//
//	admin ADDRS TOPIC           creates, grows, alters and deletes a topic
//	produce ADDRS TOPIC CODECS  writes each line of its input, with one of the codecs after
//	                            the other, and prints it when it is acknowledged
//	consume ADDRS TOPIC N       prints the first N values of partition 0
//	member ADDRS TOPIC GROUP    prints a group's values until its input ends
//
// A program written in Go is this test's own binary, run again (TestMain).
type program struct {
	name       string
	idempotent bool     // whether its producer is
	codecs     []string // that it can write
	cannot     []string // admin steps that the client does not support

	inGo   client
	script string // of testdata, with the modules and Debian packages that it needs
	needs  [][2]string
}

// retry retries check for up to waitLimit: any broker may answer, and each learns of the
// controller's decision by itself, shortly after the client that requested the change got its
// response.
func retry(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// retrying makes setting retry as retry does.
func retrying(ctx context.Context, setting func(name, want string) error) func(name, want string) error {
	return func(name, want string) error {
		return retry(ctx, func() error { return setting(name, want) })
	}
}

type client interface {
	admin(ctx context.Context, addrs []string, topic string, did func(step string)) error
	produce(ctx context.Context, addrs []string, topic string, codecs []string, values <-chan string, acked func(string)) error
	consume(ctx context.Context, addrs []string, topic string, n int, got func(string)) error
	member(ctx context.Context, addrs []string, topic, group string, got func(string)) error
}

var allCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

var programs = []program{
	{name: "sarama", inGo: viaSarama{}, idempotent: true, codecs: allCodecs},
	{name: "kafka-go", inGo: viaKafkaGo{}, codecs: allCodecs},
	{
		name: "kafka-python", script: "kafka_python.py", codecs: allCodecs,
		needs: [][2]string{{"kafka", "python3-kafka"}, {"snappy", "python3-snappy"}, {"lz4.frame", "python3-lz4"}, {"zstandard", "python3-zstandard"}},
	},
	{
		name: "confluent-kafka-python", script: "confluent.py", idempotent: true, codecs: allCodecs,
		needs: [][2]string{{"confluent_kafka", "python3-confluent-kafka"}},
	},
}

const programVar = "LIMBO_CLIENT_PROGRAM"

func TestMain(m *testing.M) {
	name := os.Getenv(programVar)
	for _, p := range programs {
		if p.name == name {
			if err := p.main(os.Args[1:]); err != nil {
				fmt.Fprintln(os.Stderr, name+":", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	// The tests spend most of their time waiting for other parties' timeouts. A -test.parallel flag
	// on the command line is parsed later and overrides this.
	_ = flag.Set("test.parallel", "32")
	status := m.Run()
	if err := endShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// main runs a program that is written in Go.
func (p program) main(args []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex // clients call say from several goroutines
	print := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line)
	}
	verb, addrs, topic := args[0], strings.Split(args[1], ","), args[2]
	switch verb {
	case "admin":
		return p.inGo.admin(ctx, addrs, topic, print)
	case "produce":
		values := make(chan string)
		var both errgroup.Group
		both.Go(func() error {
			defer close(values)
			lines := bufio.NewScanner(os.Stdin)
			for lines.Scan() {
				values <- lines.Text()
			}
			return lines.Err()
		})
		if err := p.inGo.produce(ctx, addrs, topic, strings.Split(args[3], ","), values, print); err != nil {
			return err
		}
		return both.Wait()
	case "consume":
		n := 0
		if _, err := fmt.Sscan(args[3], &n); err != nil {
			return err
		}
		return p.inGo.consume(ctx, addrs, topic, n, print)
	case "member":
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		err := p.inGo.member(ctx, addrs, topic, args[3], print)
		if ctx.Err() != nil {
			return nil // the caller ended it
		}
		return err
	}
	return fmt.Errorf("no such verb: %q", verb)
}

// running is a program's process.
type running struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu     sync.Mutex
	lines  []string // guarded by mu
	out    sync.WaitGroup
	errors strings.Builder
}

// interpreter returns the interpreter that can run p's script, or the Debian packages that are
// missing for it. Debian's modules belong to /usr/bin/python3, which may not be the first python3
// in the path.
func (p program) interpreter() (path, missing string) {
	if p.script == "" {
		return "", ""
	}
	interpreters.Lock()
	defer interpreters.Unlock()
	if path = interpreters.byScript[p.script]; path != "" {
		return path, ""
	}
	for _, path = range []string{"python3", "/usr/bin/python3"} {
		missing = ""
		for _, module := range p.needs {
			if exec.Command(path, "-c", "import "+module[0]).Run() != nil {
				missing = strings.TrimSpace(missing + " " + module[1])
			}
		}
		if missing == "" {
			interpreters.byScript[p.script] = path
			return path, ""
		}
	}
	return "", missing
}

// interpreters caches the interpreters that were found.
var interpreters = struct {
	sync.Mutex
	byScript map[string]string
}{byScript: map[string]string{}}

// need skips the test if the program cannot run.
func (p program) need(t *testing.T) {
	t.Helper()
	if _, missing := p.interpreter(); missing != "" {
		need.Skip(t, "what "+p.name+" needs", missing)
	}
}

// run starts a program. If it still runs when the test ends, it is killed.
func (p program) run(t *testing.T, args ...string) *running {
	t.Helper()
	var cmd *exec.Cmd
	if p.inGo != nil {
		cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), programVar+"="+p.name)
	} else {
		python, _ := p.interpreter()
		cmd = exec.CommandContext(t.Context(), python, append([]string{"testdata/" + p.script}, args...)...)
	}
	r := &running{cmd: cmd}
	cmd.Stderr = &r.errors
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	r.in = in
	require.NoError(t, cmd.Start())
	r.out.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			r.mu.Lock()
			r.lines = append(r.lines, lines.Text())
			r.mu.Unlock()
		}
	})
	return r
}

// output returns the lines that the program has printed so far.
func (r *running) output() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[:len(r.lines):len(r.lines)]
}

// end closes the program's input, waits until it exits, and returns the lines that it printed.
func (r *running) end(t *testing.T) []string {
	t.Helper()
	require.NoError(t, r.in.Close())
	late := time.AfterFunc(waitLimit, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	r.out.Wait()
	require.NoError(t, r.cmd.Wait(), "%s%s", tail(r.output()), &r.errors)
	return r.output()
}

// kill ends the program like a machine failure: the brokers are not told.
func (r *running) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, r.cmd.Process.Kill())
	r.out.Wait()
	require.Error(t, r.cmd.Wait())
}

func tail(lines []string) string {
	return strings.Join(lines[max(0, len(lines)-5):], "\n") + "\n"
}
