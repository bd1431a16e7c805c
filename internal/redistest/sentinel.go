package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
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

// OpenBehindSentinel opens a backend by the URL of a Sentinel, and requires that it counts on the primary.
func OpenBehindSentinel(t *testing.T, scheme string) {
	t.Helper()
	sentinel := StartSentinel(t, Start(t))
	b, err := throttr.Open(t.Context(), scheme+"://"+sentinel.Addr+"?timeout=10s&master_set="+SentinelName)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range 3 {
		res, err := throttr.NewRateLimit(b).Hit(t.Context(), "k", time.Minute, 2)
		if err != nil || res.Allowed != (i < 2) {
			t.Errorf("hit %d: %+v, %v", i, res, err)
		}
	}
}
