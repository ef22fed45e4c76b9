package programs

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"
)

// Redis returns the command of a redis-server or valkey-server, whose path is given. The server
// keeps its files in a folder, and writes none unless more arguments let it.
func Redis(path, addr, dir string, args ...string) *exec.Cmd {
	host, port, _ := net.SplitHostPort(addr)
	return exec.Command(path, append([]string{"--bind", host, "--port", port, "--dir", dir, "--save", ""}, args...)...)
}

// StartRedis starts such a server and waits until it serves, after it has read its files.
func StartRedis(path, addr, dir string, args ...string) (*Process, error) {
	return StartReady(Redis(path, addr, dir, args...), func() error {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(startLimit))
		answer := make([]byte, 64)
		n := 0
		if _, err = io.WriteString(c, "PING\r\n"); err == nil {
			n, err = c.Read(answer)
		}
		if err == nil && string(answer[:n]) != "+PONG\r\n" {
			err = fmt.Errorf("redis: %q", answer[:n])
		}
		return err
	})
}
