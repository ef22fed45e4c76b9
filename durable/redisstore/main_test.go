package redisstore

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// go-redis logs each connection that it does not get, which is what many tests do.
func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}
