package redisbackend_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

func TestServerThatIsDownIsAnErrorAndKeepsItsCounts(t *testing.T) {
	s := startOnSocket(t, "--appendonly", "yes", "--appendfsync", "always")
	b := redisbackend.New(s.connect())
	hit := func() (uint64, error) {
		w, err := b.Hit(context.Background(), "user:42", limitOf(window.FixedWindow, time.Hour, 5), 1)
		return w.Count, err
	}
	for want := uint64(1); want <= 3; want++ {
		if n, err := hit(); err != nil || n != want {
			t.Fatal(n, err)
		}
	}
	s.Kill()
	for range 5 {
		start := time.Now()
		_, err := hit()
		expect(t, err != nil && strings.HasPrefix(err.Error(), `rediswindow: hit "user:42": `), "%v", err)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the error took %v", took)
		}
		t.Log(err)
	}
	_, getErr := b.Peek(t.Context(), "user:42", limitOf(window.FixedWindow, time.Hour, 5), 0)
	_, delErr := b.Delete(t.Context(), "user:42")
	for what, err := range map[string]error{"peek": getErr, "delete": delErr, "reset": b.Reset(t.Context(), "user:42", limitOf(window.FixedWindow, time.Hour, 5))} {
		expect(t, err != nil && strings.HasPrefix(err.Error(), "rediswindow: "+what+` "user:42": `), "%v", err)
	}
	s.Restart(t)
	failed := 0
	for {
		n, err := hit()
		if err == nil {
			expect(t, n == 4, "the count is %d, want 4", n)
			break
		}
		if failed++; failed > 10 {
			t.Fatal(err)
		}
	}
	t.Logf("%d hits failed after the restart", failed)
}
