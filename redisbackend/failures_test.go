//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// Redis replicates asynchronously: a replica that takes over may have missed the last hits. The test hits windows of an
// hour until each of them is full. After a third of the hits, a primary of the cluster fails. The backends share the
// windows; each has its own client. The test fails if more hits were allowed beyond the limits than a replica can have
// missed, or if hits failed long after the failover.
func TestFailoverAllowsFewHitsMore(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	backends := []window.Backend{redisbackend.New(onCluster(t, c)), redisbackend.New(onCluster(t, c))}
	const keys, limit, callers, hits = 300, 200, 32, 300 * 300
	l := window.Limit{Max: limit, Scale: time.Hour, Algorithm: window.FixedWindow}
	var allowed [keys]atomic.Int64
	var made, errors, lastError atomic.Int64
	begun, failing := time.Now(), make(chan struct{})
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := made.Add(1); n <= hits && t.Context().Err() == nil; n = made.Add(1) {
				if n == hits/3 {
					close(failing)
				}
				k := n / 16 % keys // callers at one time hit few windows, and so share entries of requests
				w, err := backends[i%len(backends)].Hit(t.Context(), fmt.Sprint("user:", k), l, 1)
				for ; err != nil && time.Since(begun) < 2*patience; w, err = backends[i%len(backends)].Hit(t.Context(), fmt.Sprint("user:", k), l, 1) {
					errors.Add(1)
					lastError.Store(int64(time.Since(begun)))
					time.Sleep(10 * time.Millisecond)
				}
				if err == nil && w.Count <= limit {
					allowed[k].Add(1)
				}
			}
		})
	}
	<-failing
	failed := time.Since(begun)
	c.Primaries[0].Kill()
	c.Replicas[0].Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	all.Wait()
	over := int64(0)
	for i := range allowed {
		n := allowed[i].Load()
		expect(t, n > limit/2, "only %d hits of window %d were allowed", n, i)
		over += max(0, n-limit)
	}
	until := time.Duration(lastError.Load()) - failed
	t.Logf("%d hits were allowed beyond the limits; %d failed, until %v after the failure", over, errors.Load(), until)
	expect(t, over <= keys*limit/100, "%d hits were allowed beyond the limits", over)
	expect(t, until <= 45*time.Second, "hits failed until %v after the primary has failed", until)
}

// Callers hit and take while the slot of their keys moves to another node, and back. Nothing is forgotten,
// nothing is left behind, and no call fails. Two keys are in one slot, and move one after the other.
func TestSlotsThatMoveKeepTheirCounts(t *testing.T) {
	c := testkit.StartCluster(t, 2, 2)
	const limit, key, other = 60, "k", "19945"
	slot := c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", "k:"+key)
	expect(t, slot == c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", "k:"+other), "the keys are in two slots")
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			b := redisbackend.New(onCluster(t, c))
			from, to := c.Primaries[0], c.Primaries[1]
			if _, err := from.Do("HLEN", "{k:k}"); err != nil { // MOVED
				from, to = to, from
			}
			var granted atomic.Int64
			call := func(i int) {
				scale := time.Duration(20+i%2) * 100 * time.Hour
				var ok bool
				var err error
				if i%3 == 0 {
					limits := []window.Take{limitOf(a, scale, limit).For(key, 1), limitOf(a, scale, 1000).For(other, 1)}
					ok, err = b.TakeAll(t.Context(), limits, make([]window.Window, len(limits)))
				} else {
					var w window.Window
					w, err = b.Hit(t.Context(), key, limitOf(a, scale, limit), 1)
					ok = !w.Refused && (a.Rolling() || w.Count <= limit)
				}
				if err != nil {
					t.Error(err)
				} else if ok {
					granted.Add(1)
				}
			}
			for i := range 20 {
				call(i)
			}
			expect(t, granted.Load() == 20, "%d were granted", granted.Load())
			var callers sync.WaitGroup
			var end atomic.Bool
			for g := range 4 {
				callers.Go(func() {
					for i := g; !end.Load(); i++ {
						call(i)
						time.Sleep(time.Millisecond)
					}
				})
			}
			for range 2 {
				move(t, from, to, slot)
				from, to = to, from
			}
			for i := range 4 * limit {
				call(i)
			}
			end.Store(true)
			callers.Wait()
			expect(t, granted.Load() == 2*limit, "%d were granted, want %d", granted.Load(), 2*limit)
			for _, key := range []string{key, other} {
				noError(t, errorOf(b.Delete(t.Context(), key)))
			}
		})
	}
}

// move moves a slot, as redis-cli does, but takes its time.
func move(t *testing.T, from, to *testkit.Redis, slot string) {
	t.Helper()
	me, you := from.Must(t, "CLUSTER", "MYID"), to.Must(t, "CLUSTER", "MYID")
	to.Must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", me)
	from.Must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", you)
	time.Sleep(20 * time.Millisecond)
	for {
		names := from.Must(t, "CLUSTER", "GETKEYSINSLOT", slot, "100")
		if names == "" {
			break
		}
		for _, name := range strings.Split(names, "\n") {
			from.Must(t, "MIGRATE", "127.0.0.1", to.Port, name, "0", "60000")
			time.Sleep(20 * time.Millisecond)
		}
	}
	to.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", you)
	from.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", you)
	expect(t, from.Must(t, "CLUSTER", "COUNTKEYSINSLOT", slot) == "0", "keys are left")
}

// While Redis hangs, the calls of a RateLimit on a client of the user's end with its time limit, and leave the
// connection to the user's own commands.
func TestCommandsOfTheUserSurviveAServerThatHangs(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s, func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 }) // one connection
	limiter := throttr.NewRateLimit(redisbackend.New(client), throttr.WithLogger(nil), throttr.WithTimeout(100*time.Millisecond))
	take := func() (time.Duration, error) {
		begun := time.Now()
		_, err := limiter.Take(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 5), 1)
		return time.Since(begun), err
	}
	_, err := take()
	noError(t, err)
	s.Freeze(t)
	for range 2 { // the first one alone on the connection, the second one behind the user's
		took, err := take()
		expect(t, errors.Is(err, throttr.ErrUnavailable) && took < time.Second, "%v, after %v", err, took)
	}
	own := make(chan error, 1)
	go func() { own <- client.Do(t.Context(), client.B().Set().Key("mine").Value("1").Build()).Error() }()
	time.Sleep(50 * time.Millisecond)
	took, err := take()
	expect(t, errors.Is(err, throttr.ErrUnavailable) && took < time.Second, "%v, after %v", err, took)
	s.Thaw(t)
	noError(t, <-own)
	expect(t, s.Must(t, "GET", "mine") == "1", "the user's own command is lost")
}

// Each node of a cluster has a circuit, for windows and for places in flight: that of one that hangs decides nothing
// about the keys of another.
func TestANodeThatHangsStopsItsOwnKeysOnly(t *testing.T) {
	c := testkit.StartCluster(t, 3, 0)
	const hung, healthy = "user:42", "user:46" // of the slots 5430 and 5554: close to each other, on nodes 0 and 1
	b := redisbackend.New(onCluster(t, c))
	limiter := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits), throttr.WithLogger(nil))
	take := func(key string) throttr.Result {
		r, err := limiter.Take(context.Background(), key, throttr.Limit{Max: 5, Scale: time.Minute}, 1)
		noError(t, err)
		return r
	}
	take(hung)
	await(t, "the nodes of the slots are not known", func() bool {
		take(healthy)
		return b.Part(hung) != "" && b.Part(hung) != b.Part(healthy)
	})
	noError(t, errorOf(b.Delete(t.Context(), healthy)))
	places := newInFlight(t, b, inflight.WithTimeout(0))
	limit := inflight.Limit{Max: 2, Lease: 2 * time.Second}
	lost, kept := acquired(t, places, hung, limit, 1), acquired(t, places, healthy, limit, 1)

	c.Primaries[0].Freeze(t)
	defer c.Primaries[0].Thaw(t)
	for range 5 {
		l := throttr.Limit{Max: 5, Scale: time.Minute}
		_, results, err := limiter.TakeAll(context.Background(), l.For(healthy, 1), l.For(hung, 1))
		expect(t, err == nil && results[1].Degraded, "takes on the node that hangs were not decided by the policy: %v", err)
	}
	noError(t, errorOf(b.Delete(t.Context(), healthy)))
	for i := range 50 {
		r := take(healthy)
		expect(t, !r.Degraded && r.Allowed == (i < 5), "take %d on a key of a node that is there: %+v", i, r)
	}
	for frozen := time.Now(); time.Since(frozen) < limit.Lease; time.Sleep(20 * time.Millisecond) {
		_, _, err := places.TryAcquire(context.Background(), hung, limit, 1)
		expect(t, errors.Is(err, throttr.ErrUnavailable), "a place of the node that hangs: %v", err)
		h, ok, err := places.TryAcquire(context.Background(), healthy, limit, 1)
		expect(t, ok || errors.Is(err, outage.ErrStill), "a place of a node that is there: %v", err)
		h.Release()
	}
	expect(t, !lost.Valid() && kept.Valid(), "the place of the node that hangs is valid: %v; the other: %v", lost.Valid(), kept.Valid())
}

// A give-back whose response is cut off is made once, also if the reservation is canceled again.
func TestGiveBacksThatAreCutOff(t *testing.T) {
	s := testkit.StartRedis(t)
	var next atomic.Bool
	addr := testkit.CutResponses(t, s, &next)
	client := connectTo(t, rueidis.ClientOption{
		InitAddress: []string{addr}, ConnWriteTimeout: patience, PipelineMultiplex: -1, // one connection
	})
	limiter, direct := throttr.NewRateLimit(redisbackend.New(client)), redisbackend.New(connect(t, s))
	l := limitOf(window.FixedWindow, time.Hour, 10)
	must(t, direct.Take, "k", l, 3)
	for range 5 {
		rv, ok, err := limiter.Reserve(t.Context(), l.For("k", 5))
		expect(t, ok && err == nil, "%v, %v", ok, err)
		next.Store(true)
		err = rv.Cancel(t.Context())
		expect(t, errors.Is(err, throttr.ErrUnavailable), "the give-back got a response: %v", err)
		noError(t, rv.Cancel(t.Context())) // it does nothing
		count := must(t, direct.Peek, "k", l, 0).Count
		expect(t, count == 3, "the count is %d", count)
	}
}
