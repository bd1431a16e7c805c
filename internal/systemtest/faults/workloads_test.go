package faults_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// workload is a kind of call. start prepares a scenario for it. It returns the call, and a
// function to call after the client is closed, which returns how many executions of requests were
// repetitions.
type workload struct {
	name  string
	hits  bool
	start func(s *scenario) (do call, finish func() (repeated int))
}

var workloads = []workload{
	{"Single requests", false, startRequests},
	{"Subscriptions", false, startSubscriptions},
	{"Hits with ReturnError", true, startHits(throttr.ReturnError)},
	{"Hits with AllowHits", true, startHits(throttr.AllowHits)},
	{"Hits with DenyHits", true, startHits(throttr.DenyHits)},
	{"Hits with a fallback", true, func(s *scenario) (call, func() int) {
		b := memory.New()
		s.Cleanup(func() { b.Close() })
		return startHitsWith(s, throttr.WithFallback(b))
	}},
}

// writes are the ops of requests that change something. The client may repeat all others.
var writes = []codec.Op{codec.OpInsert, codec.OpUpdate, codec.OpPurge, codec.OpSet}

// startRequests makes one request a call, of six kinds in turn. Each call has a key of its own.
// Half of the keys exist.
func startRequests(s *scenario) (call, func() int) {
	for n := range totalCalls {
		if n/6%2 == 0 {
			s.srv.Set(strconv.Itoa(n), uint64(n), testkit.Minute.Duration())
		}
	}
	do := func(ctx context.Context, n int) (verdict, bool, error) {
		c, key := s.client, strconv.Itoa(n)
		var op codec.Op
		var ok bool
		var quota uint16
		var err error
		switch n % 6 {
		case 0:
			op = codec.OpInsert
			ok, err = c.Insert(ctx, key, 1, testkit.Minute)
		case 1:
			var r throttr.Counter[uint16]
			op = codec.OpQuery
			r, ok, err = c.Query(ctx, key)
			quota = r.Quota
		case 2:
			op = codec.OpUpdate
			ok, err = c.Update(ctx, key, codec.Quota, codec.Increase, 1)
		case 3:
			op = codec.OpPurge
			ok, err = c.Purge(ctx, key)
		case 4:
			op = codec.OpSet
			ok, err = c.Set(ctx, key, []byte(key), testkit.Minute)
		case 5:
			op = codec.OpGet
			_, ok, err = c.Get(ctx, key)
		}
		return s.verdict(s.executed.match(op, key, ok, quota)), len(s.executed.of(op, key)) > 0, err
	}
	return do, func() int { return s.executed.repeated(writes...) }
}

// startSubscriptions subscribes to a channel of its own in each call, and receives a message that
// the server publishes there. Another subscription stays open. It must not receive a message
// twice, or one of another channel.
func startSubscriptions(s *scenario) (call, func() int) {
	var mu sync.Mutex
	published := 0
	publish := func() {
		mu.Lock()
		defer mu.Unlock()
		published++
		s.srv.Publish("all", []byte(strconv.Itoa(published)))
	}
	steady := testkit.Subscribe(s, s.client, "all")
	var reader sync.WaitGroup
	reader.Go(func() {
		last := 0
		for m, err := range steady.Messages(context.Background()) {
			if err != nil {
				return
			}
			n, err := strconv.Atoi(string(m.Payload))
			if !m.Gap && (err != nil || n <= last || m.Channel != "all") {
				s.Errorf("message %v after %d", m, last)
			}
			last = max(last, n)
		}
	})
	do := func(ctx context.Context, n int) (verdict, bool, error) {
		name := "c" + strconv.Itoa(n)
		sub, err := s.client.Subscribe(ctx, name)
		if err != nil {
			return correctResponse, false, err
		}
		defer sub.Close()
		s.srv.Publish(name, []byte(name))
		publish()
		for {
			m, err := sub.Next(ctx)
			if err != nil || !m.Gap {
				return s.verdict(m.Channel == name && string(m.Payload) == name), false, err
			}
		}
	}
	return do, func() int {
		reader.Wait()
		return s.executed.repeated(codec.OpSubscribe)
	}
}

// The workloads of hits hit each key twice in each of two rounds.
const (
	keysPerRound = 4
	hitsPerKey   = 2 * callsPerRound / keysPerRound
	hitLimit     = 3
	hitTimeout   = 150 * time.Millisecond
)

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
		key := fmt.Sprintf("k%d.%d", n/(2*callsPerRound), n%keysPerRound)
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
		for _, added := range s.executed.added() {
			repeated += max(0, added-hitsPerKey)
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
