package selfcheck

import (
	"io"
	"os"
	"sync"
)

// Shared returns a writer to out that is safe for concurrent use. A program whose Run and Logger
// both write to stderr passes the same Shared writer to both, because each only has a lock of its
// own.
func Shared(out io.Writer) io.Writer {
	if f, ok := out.(*os.File); ok {
		return f // already safe, and NewProgress checks for a terminal
	}
	return &shared{out: out}
}

type shared struct {
	mu  sync.Mutex
	out io.Writer // guarded by mu
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}
