package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// SentinelName is the name under which a Sentinel knows its primary.
const SentinelName = "primary"

// StartSentinel starts a Sentinel that watches a primary. It ends with the test.
func StartSentinel(t testing.TB, primary *Server) *Server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 1\n", SentinelName, primary.Port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return Start(t, config, "--sentinel")
}
