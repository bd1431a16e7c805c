package redisbackend_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// If ctx has ended before the call, the call does nothing (package window): nothing is sent.
func TestNothingIsSentForACtxThatHasEnded(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	noError(t, b.Ping(t.Context()))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for call, f := range map[string]func() error{
		"delete": func() error { return errorOf(b.Delete(ended, "k")) },
		"ping":   func() error { return b.Ping(ended) },
		"list": func() (last error) {
			b.List(ended, "k")(func(_ window.Listed, err error) bool { last = err; return true })
			return last
		},
	} {
		s.Must(t, "CONFIG", "RESETSTAT")
		said := 0
		for range 40 {
			err := f()
			expect(t, errors.Is(err, context.Canceled), "%s: %v", call, err)
			if strings.Contains(err.Error(), "may have been counted") {
				said++
			}
		}
		stats := s.Must(t, "INFO", "commandstats")
		if at := strings.Index(stats, "cmdstat_eval"); said > 0 || at >= 0 {
			t.Errorf("%s: %d of 40 errors say that it may have been counted; the server has executed %q", call, said, stats[max(at, 0):])
		}
	}
}
