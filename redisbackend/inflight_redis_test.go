//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// newInFlight returns a limiter on a backend.
func newInFlight(t testing.TB, b *rediswindow.Backend, opts ...inflight.Option) *inflight.Limiter {
	opts = append([]inflight.Option{inflight.WithLogger(nil), inflight.WithTimeout(10 * time.Second)}, opts...) // a busy machine
	l := inflight.New(b, opts...)
	t.Cleanup(func() {
		l.Close()
		b.Close()
	})
	return l
}

func acquired(t testing.TB, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) *inflight.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := l.Acquire(ctx, key, limit, n)
	noError(t, err)
	return h
}

// handOver returns how long it takes from a release to the next holder in another process, in several rounds.
func handOver(t testing.TB, one, two *inflight.Limiter, limit inflight.Limit, rounds int) (all []time.Duration) {
	for range rounds {
		h := acquired(t, one, "k", limit, limit.Max)
		got := make(chan time.Time)
		go func() {
			h := acquired(t, two, "k", limit, 1)
			got <- time.Now()
			h.Release()
		}()
		for {
			s, err := one.Peek(context.Background(), "k", limit)
			noError(t, err)
			if s.Waiting == 1 {
				break
			}
		}
		start := time.Now()
		h.Release()
		all = append(all, (<-got).Sub(start))
	}
	slices.Sort(all)
	return all
}

// The next holder does not wait for the next time that its process asks: a tenth of a second is much less.
func TestAReleaseWakesTheNextHolder(t *testing.T) {
	s := testkit.StartRedis(t)
	limit := inflight.Limit{Name: "two words", Max: 1, Lease: 4 * time.Second} // who waits asks every 500 ms
	one, two := newInFlight(t, redisbackend.New(connect(t, s))), newInFlight(t, redisbackend.New(connect(t, s)))
	ready(t, one, limit)
	handOver(t, one, two, limit, 3) // until the subscription is there
	all := handOver(t, one, two, limit, 15)
	t.Logf("from release to the next holder: %v to %v", all[0], all[len(all)-1])
	expect(t, all[len(all)/2] < 100*time.Millisecond, "the next holder waits for %v", all)
}

func TestWhoeverIsNotWokenAsks(t *testing.T) {
	s := testkit.StartRedis(t)
	limit := inflight.Limit{Max: 1, Lease: time.Second}
	backend := func() *rediswindow.Backend { return rediswindow.New(plainClient{connect(t, s)}) }
	one, two := newInFlight(t, backend()), newInFlight(t, backend())
	ready(t, one, limit)
	all := handOver(t, one, two, limit, 5)
	expect(t, all[len(all)/2] > 10*time.Millisecond, "somebody woke the next holder: %v", all)
}

// A server that has loaded what it had saved may lack what it had not: a place that was granted since.
func TestAServerThatWasStartedAgainGrantsNothingForALease(t *testing.T) {
	s := testkit.StartRedisOnSocket(t)
	client := connect(t, s)
	limit := inflight.Limit{Max: 1, Lease: 2 * time.Second}
	one := newInFlight(t, redisbackend.New(client), inflight.WithStrict())
	ready(t, one, limit)
	redis(t, client, "SAVE")
	h := acquired(t, one, "k", limit, 1)
	s.Kill()
	s.Restart(t)
	two := newInFlight(t, redisbackend.New(connect(t, s)), inflight.WithStrict())
	start := time.Now()
	for h.Valid() && time.Since(start) < limit.Lease/2 {
		other, ok, err := two.TryAcquire(context.Background(), "k", limit, 1)
		expect(t, !ok || !h.Valid(), "a second place of one, %v after the start", time.Since(start))
		if err == nil {
			other.Release()
		}
		time.Sleep(10 * time.Millisecond)
	}
	h.Release()
	acquired(t, two, "k", limit, 1).Release()
	expect(t, time.Since(start) >= limit.Lease*9/10, "a place is granted %v after the start", time.Since(start))
}

func TestAFlushIsALossOfData(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	limit := inflight.Limit{Max: 2, Lease: 2 * time.Second}
	one, two := newInFlight(t, redisbackend.New(client), inflight.WithStrict()), newInFlight(t, redisbackend.New(connect(t, s)), inflight.WithStrict())
	ready(t, one, limit)
	h := acquired(t, one, "k", limit, 2)
	redis(t, client, "FLUSHALL")
	for start := time.Now(); time.Since(start) < 2*limit.Lease; time.Sleep(20 * time.Millisecond) {
		_, ok, err := two.TryAcquire(context.Background(), "k", limit, 1)
		var notYet *inflight.NotYetError
		expect(t, err == nil || errors.As(err, &notYet) && notYet.RetryAfter <= limit.Lease, "%v", err)
		expect(t, !ok || !h.Valid(), "a third place of two")
	}
	expect(t, h.Valid(), "a process that reaches the store has lost its places")
}

// A hash that is none fails the claims on it, and no others of the same call.
func TestAClaimThatFailsFailsAlone(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	b := redisbackend.New(client)
	redis(t, client, "SET", "throttr:{k:bad}:f1:", "text")
	var claims []window.Claim
	for i, key := range []string{"good", "bad", "better"} {
		claims = append(claims, window.Claim{Key: key, Process: "p", Seq: uint64(i + 1), Lease: time.Second, Held: 1, HeldMax: 1})
	}
	places := make([]window.Places, 3)
	noError(t, b.Exchange(context.Background(), claims, places))
	expect(t, places[0].Err == nil && places[1].Err != nil && places[2].Err == nil, "%+v", places)
	text := fmt.Sprint(places[1].Err)
	expect(t, len(text) > 30 && text[:33] == `rediswindow: exchange "bad": WRON`, "%s", text)
}

// What is stored does not grow with the places, and goes away.
func TestPlacesInFlightTakeLittleMemory(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	limit := inflight.Limit{Max: 20_000, Lease: time.Second}
	l := newInFlight(t, redisbackend.New(client))
	ready(t, l, limit)
	var holds []*inflight.Hold
	for range 10_000 / 100 {
		holds = append(holds, acquired(t, l, "k", limit, 100))
	}
	ledger, err := redis(t, client, "MEMORY", "USAGE", "throttr:{k:k}:f1:").AsInt64()
	noError(t, err)
	for i := range 10_000 {
		redis(t, client, "ZADD", "set", fmt.Sprint(time.Now().UnixMilli()), fmt.Sprintf("holder-%d", i))
	}
	set, err := redis(t, client, "MEMORY", "USAGE", "set", "SAMPLES", "0").AsInt64()
	noError(t, err)
	t.Logf("10,000 places: %d bytes, a sorted set %d", ledger, set)
	expect(t, float64(ledger) <= 0.02*float64(set), "10,000 places take %d bytes, a sorted set %d", ledger, set)
	for _, h := range holds {
		h.Release()
	}
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if n, err := redis(t, client, "EXISTS", "throttr:{k:k}:f1:", "throttr:{k:ready}:f1:").AsInt64(); err == nil && n == 0 {
			break
		}
		expect(t, time.Since(start) < patience, "the hashes stay")
	}
}

// What is stored under one key is no error of the claims that share its script.
func TestAHashThatHoldsNoPlacesFailsItsOwnClaims(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	b := redisbackend.New(client)
	defer b.Close()
	claim := func(key string, seq uint64) window.Claim {
		return window.Claim{Key: key, Name: "", Process: "p", Seq: seq, Lease: window.MinLease, Wants: []window.Want{{N: 1, Max: 5}}}
	}
	places := make([]window.Places, 1)
	noError(t, b.Exchange(context.Background(), []window.Claim{claim("warm", 1)}, places))
	time.Sleep(window.MinLease + 100*time.Millisecond)
	redis(t, client, "SET", "throttr:{k:bad}:f1:", "1")
	places = make([]window.Places, 2)
	err := b.Exchange(context.Background(), []window.Claim{claim("good", 2), claim("bad", 3)}, places)
	noError(t, err)
	expect(t, places[1].Err != nil, "bad: %+v", places[1])
	expect(t, places[0].Err == nil && !places[0].Late && places[0].Tokens != nil, "good: %+v", places[0])
}

// ready waits until a store that has just been made grants.
func ready(t testing.TB, l *inflight.Limiter, limit inflight.Limit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit.Lease+patience)
	defer cancel()
	h, err := l.Acquire(ctx, "ready", limit, 1)
	noError(t, err)
	h.Release()
}
