package main

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// nettyRival runs Netty's own class in a JVM, in a small program that is compiled before the
// first job.
var nettyRival = rival{
	name:        "netty-jvm",
	setup:       "Netty's own io.netty.util.HashedWheelTimer, on the JVM: tick 1 ms, 65,536 ticks per wheel; warmed up for the JIT",
	workloads:   []string{"W1", "W2", "W3", "W5"},
	maxSize:     10_000_000,
	bytes:       130,
	unavailable: func() error { _, err := nettyCommand(); return err },
	command: func(j Job) []string {
		command, err := nettyCommand()
		must(err) // the runner has called unavailable
		quick := 0
		if j.Quick {
			quick = 1
		}
		command = append(slices.Clone(command), j.Workload,
			fmt.Sprintf("seed=%d", uint64(j.seed())), fmt.Sprintf("quick=%d", quick), fmt.Sprintf("slack=%d", max(j.Slack, 1)))
		for _, name := range slices.Sorted(maps.Keys(j.Params)) {
			command = append(command, fmt.Sprintf("%s=%d", name, j.Params[name]))
		}
		return command
	},
}

//go:embed nettyjvm/NettyBench.java
var nettySource []byte

// scratch is a directory for intermediate files, which main removes.
var scratch = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "limbo-bench-") })

// nettyCommand returns the command line of the Java program, without its arguments.
var nettyCommand = sync.OnceValues(func() ([]string, error) {
	java, err := program("default-jdk-headless", "java")
	if err != nil {
		return nil, err
	}
	var classpath []string
	for _, name := range []string{"netty-common.jar", "jctools-core.jar"} {
		jar, err := file("libnetty-java", filepath.Join("/usr/share/java", name))
		if err != nil {
			return nil, err
		}
		classpath = append(classpath, jar)
	}
	dir, err := scratch()
	if err != nil {
		return nil, err
	}
	source := filepath.Join(dir, "NettyBench.java")
	if err := os.WriteFile(source, nettySource, 0o600); err != nil {
		return nil, err
	}
	join := func(paths []string) string { return strings.Join(paths, string(os.PathListSeparator)) }
	javac, err := exec.LookPath("javac")
	if err != nil { // a JRE compiles the program at each start
		return []string{java, "-cp", join(classpath), source}, nil
	}
	if out, err := exec.Command(javac, "-d", dir, "-cp", join(classpath), source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w: %s", err, out)
	}
	return []string{java, "-cp", join(append(classpath, dir)), "NettyBench"}, nil
})
