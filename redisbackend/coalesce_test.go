//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// hitTogether hits each key n times while the server does not respond, so that hits share requests. It
// returns the windows and the errors of each key.
func hitTogether(t *testing.T, s *testkit.Redis, b *rediswindow.Backend, n int, keys ...string) (windows [][]window.Window, errs [][]error) {
	t.Helper()
	windows, errs = make([][]window.Window, len(keys)), make([][]error, len(keys))
	s.Freeze(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		for k, key := range keys {
			all.Go(func() {
				w, err := b.Hit(context.Background(), key, limitOf(window.FixedWindow, time.Hour, 5), 1)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					windows[k] = append(windows[k], w)
				} else {
					errs[k] = append(errs[k], err)
				}
			})
		}
	}
	time.Sleep(50 * time.Millisecond) // until all wait; if some do not, they share fewer requests
	s.Thaw(t)
	all.Wait()
	return windows, errs
}

// requireDistinct fails the test if the counts of a window are not 1, 2, 3 …
func requireDistinct(t *testing.T, windows []window.Window, n int) {
	t.Helper()
	counts := map[uint64]bool{}
	for _, w := range windows {
		if w.Count < 1 || w.Count > uint64(n) || counts[w.Count] || w.ID != windows[0].ID || !w.ExpiresAt.Equal(windows[0].ExpiresAt) {
			t.Fatalf("%+v in a window with %+v", w, windows[0])
		}
		counts[w.Count] = true
	}
	expect(t, len(counts) == n, "there are %d counts, want %d", len(counts), n)
}

// evals returns how many scripts the server was sent by their digest, and in full.
func evals(t *testing.T, client rueidis.Client) (byDigest, inFull int) {
	t.Helper()
	stats, err := redis(t, client, "INFO", "commandstats").ToString()
	noError(t, err)
	for line := range strings.Lines(stats) {
		fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &byDigest)
		fmt.Sscanf(line, "cmdstat_eval:calls=%d", &inFull)
	}
	return byDigest, inFull
}

func TestHitsAtOneTimeShareRequests(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	b := redisbackend.New(client)
	redis(t, client, "CONFIG", "RESETSTAT")
	windows, errs := hitTogether(t, s, b, 100, "a", "b", "c")
	for i := range windows {
		if len(errs[i]) > 0 {
			t.Fatal(errs[i])
		}
		requireDistinct(t, windows[i], 100)
	}
	calls, again := evals(t, client)
	expect(t, calls >= 1 && calls <= 100, "300 hits have made %d requests", calls)
	t.Logf("300 hits have made %d requests, %d of them twice", calls, again)
}

func TestBrokenWindowFailsItsHitsOnly(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	b := redisbackend.New(client)
	redis(t, client, "SET", "throttr:{k:string}:v2", "1")
	redis(t, client, "HSET", "throttr:{k:text}:v2", "f3600000000", "text")
	windows, errs := hitTogether(t, s, b, 50, "good", "string", "text", "other")
	for i, want := range []string{"", "WRONGTYPE", "not a window", ""} {
		if want == "" {
			requireDistinct(t, windows[i], 50)
			continue
		}
		expect(t, len(errs[i]) == 50, "%d hits have failed, want 50", len(errs[i]))
		for _, err := range errs[i] {
			expect(t, strings.Contains(err.Error(), want), "%v, want %s", err, want)
		}
	}
}

// If something is wrong with all windows of a script, its hits fail, and none is sent again.
func TestServerWithoutMemoryFailsHitsTogether(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	b := redisbackend.New(client)
	if _, err := b.Hit(t.Context(), "another", limitOf(window.FixedWindow, time.Hour, 5), 1); err != nil { // the server knows the script
		t.Fatal(err)
	}
	redis(t, client, "CONFIG", "SET", "maxmemory", "1")
	redis(t, client, "CONFIG", "RESETSTAT")
	_, errs := hitTogether(t, s, b, 10, "a", "b", "c", "d", "e")
	for _, errs := range errs {
		expect(t, len(errs) == 10, "%d hits have failed, want 10", len(errs))
		for _, err := range errs {
			expect(t, strings.Contains(err.Error(), "OOM") && errors.Is(err, window.ErrFull), "%v, want OOM", err)
		}
	}
	if calls, _ := evals(t, client); calls >= 50 {
		t.Errorf("50 hits have made %d requests", calls)
	}
}
