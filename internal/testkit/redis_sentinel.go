package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
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

// BehindSentinel requires that a backend counts that is opened by the URL of a Sentinel.
func BehindSentinel(t *testing.T, scheme string, open func(url string) (window.BackendCloser, error)) {
	t.Helper()
	sentinel := StartSentinel(t, StartRedis(t))
	b, err := open(scheme + "://" + sentinel.Addr + "?timeout=10s&master_set=" + SentinelName)
	noError(t, err)
	defer b.Close()
	l := window.Limit{Max: 2, Scale: time.Minute, Algorithm: window.FixedWindow}
	for i := range uint64(3) {
		if w, err := b.Hit(t.Context(), "k", l, 1); err != nil || w.Count != i+1 {
			t.Errorf("hit %d: %+v, %v", i, w, err)
		}
	}
}
