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

// waitLimit limits the wait for another process.
const waitLimit = time.Minute

// TestMain fails if goroutines remain. Tests that run in parallel mostly wait for other
// processes, so all of them run at once.
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

// leavesNone makes the test wait at its end until no more goroutines remain than now. Call it
// first, so that its check runs last, and not in a parallel test.
func leavesNone(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		if left := goroutines(before); left != "" {
			t.Fatal(left)
		}
	})
}

// goroutines waits until there are at most as many goroutines as before. It returns the stacks
// of the others if they remain.
func goroutines(before int) (left string) {
	for start := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Since(start) > waitLimit {
			buf := make([]byte, 1<<16)
			return fmt.Sprintf("%d goroutines, not %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
	return ""
}
