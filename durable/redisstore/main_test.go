package redisstore

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-782fa212/limbo/internal/need"
)

func TestMain(m *testing.M) {
	logging.Disable()                        // go-redis logs each connection that fails, and many tests cut connections
	if err := need.Parallel(8); err != nil { // most tests wait for a server
		panic(err)
	}
	os.Exit(m.Run())
}
