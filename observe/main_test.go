package observe

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
)

var background = context.Background()

// patience is for what another process does; what takes that long has failed.
const patience = time.Minute

// TestMain fails if goroutines are left. Tests that run in parallel wait for other processes
// most of the time, so all of them do at once.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if left := goroutines(before); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}

// leavesNone makes the test end only when as many goroutines are left as there are now. It
// is called first, so that it is checked last, and not by a test that runs in parallel.
func leavesNone(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		if left := goroutines(before); left != "" {
			t.Fatal(left)
		}
	})
}

// goroutines waits until there are as many goroutines as before, or fewer. It returns the
// stacks of those that are left.
func goroutines(before int) (left string) {
	for start := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Since(start) > patience {
			buf := make([]byte, 1<<16)
			return fmt.Sprintf("%d goroutines, not %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
	return ""
}
