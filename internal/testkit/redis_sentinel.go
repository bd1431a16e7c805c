package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// SentinelName is the name under which a Sentinel knows its primary.
const SentinelName = "primary"

// StartSentinel starts a Sentinel that watches a primary. It ends with the test.
func StartSentinel(t testing.TB, primary *Redis) *Redis {
	t.Helper()
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 1\n", SentinelName, primary.Port)
	noError(t, os.WriteFile(config, []byte(text), 0o644))
	return StartRedis(t, config, "--sentinel")
}
