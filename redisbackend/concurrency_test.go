package redisbackend_test

import (
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// The statistics of the server show the commands that calls send, and those of their scripts.
func TestCallsAreOneRoundTrip(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	b := redisbackend.New(client)
	takes := []window.Take{limitOf(window.FixedWindow, time.Hour, 100).For("a", 1), limitOf(window.FixedWindow, time.Minute, 100).For("b", 1)}
	hit := func(a window.Algorithm) func() error {
		return func() error {
			_, err := b.Hit(t.Context(), "k", limitOf(a, time.Hour, 1), 1)
			return err
		}
	}
	for _, test := range []struct {
		call func() error
		want []string
	}{
		{hit(window.FixedWindow), []string{"cmdstat_hget:calls=10,", "cmdstat_hset:calls=10,", "cmdstat_time:calls=10,"}},
		{func() error {
			_, err := b.TakeAll(t.Context(), takes, make([]window.Window, len(takes)))
			return err
		}, []string{"cmdstat_hget:calls=40,", "cmdstat_hset:calls=20,"}},
		{hit(window.TokenBucket), nil}, {hit(window.SlidingWindow), nil}, {hit(window.SlidingLog), nil},
	} {
		noError(t, test.call()) // The server now has the script.
		redis(t, client, "CONFIG", "RESETSTAT")
		for range 10 {
			noError(t, test.call())
		}
		stats, err := redis(t, client, "INFO", "commandstats").ToString()
		noError(t, err)
		for _, want := range append(test.want, "cmdstat_evalsha:calls=10,") {
			expect(t, strings.Contains(stats, want), "no %s in %s", want, stats)
		}
		expect(t, !strings.Contains(stats, "cmdstat_eval:"), "unexpected commands: %s", stats)
		expect(t, test.want == nil || !strings.Contains(stats, "expire"), "unexpected commands: %s", stats)
	}
}
