package faults_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// The workloads of hits hit each key twice in each of two rounds.
const (
	keysPerRound = 4
	hitsPerKey   = 2 * callsPerRound / keysPerRound
	hitLimit     = 3
	hitTimeout   = 150 * time.Millisecond
)

// hitKey returns the key of the n-th hit.
func hitKey(n int) string {
	return fmt.Sprintf("k%d.%d", n/(2*callsPerRound), n%keysPerRound)
}

func startHits(p throttr.Policy) func(*scenario) (call, func() int) {
	return func(s *scenario) (call, func() int) { return startHitsWith(s, throttr.WithPolicy(p)) }
}

// startHitsWith makes a hit a call. With any policy, and with a fallback, a hit must return by
// hitTimeout.
func startHitsWith(s *scenario, o throttr.Option) (call, func() int) {
	s.timeout = hitTimeout
	limiter := throttr.NewRateLimit(s.client.Backend(), throttr.WithTimeout(hitTimeout), o)
	returned := counts{executed: &s.executed}
	do := func(ctx context.Context, n int) (verdict, bool, error) {
		key := hitKey(n)
		res, err := limiter.Hit(ctx, key, time.Minute, hitLimit)
		if err != nil {
			return correctResponse, false, err
		}
		if res.Degraded && returned.plausible(key, res) {
			return policy, false, nil
		}
		return s.verdict(!res.Degraded && returned.correct(key, res)), false, nil
	}
	// No key's windows may grow by more than its hits.
	finish := func() (repeated int) {
		keys := map[string]bool{}
		for n := range totalCalls {
			keys[hitKey(n)] = true
		}
		for key := range keys {
			repeated += max(0, s.executed.added(key)-hitsPerKey)
		}
		_, err := limiter.Hit(context.Background(), "k", time.Minute, hitLimit)
		require.ErrorIs(s, err, throttr.ErrClosed)
		return repeated
	}
	return do, finish
}

// counts records which counts hits have returned.
type counts struct {
	executed *executions
	mu       sync.Mutex // guards returned
	returned map[string]int
}

// correct reports whether the server can have decided a hit with this result. If the hit is
// allowed, the server gave its count to a hit, and no other hit has returned it. If it is denied,
// the count went over the limit.
func (c *counts) correct(key string, res throttr.Result) bool {
	if res.Allowed != (res.Count <= res.Limit) {
		return false
	}
	if !res.Allowed {
		return c.executed.assignments(windowCount{key, res.Limit + 1}) > 0
	}
	return c.claim(fmt.Sprintf("%s %d", key, res.Count), c.executed.assignments(windowCount{key, res.Count}))
}

// plausible reports whether a policy or a fallback can have decided a hit with this result. A
// policy does not count. A fallback returns each count once.
func (c *counts) plausible(key string, res throttr.Result) bool {
	return res.Count == 0 || res.Allowed == (res.Count <= res.Limit) && c.claim(fmt.Sprintf("fallback %s %d", key, res.Count), 1)
}

// claim records that a hit has returned the count that id names. It reports whether no more than
// most hits have done so.
func (c *counts) claim(id string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returned == nil {
		c.returned = map[string]int{}
	}
	if c.returned[id] >= most {
		return false
	}
	c.returned[id]++
	return true
}
