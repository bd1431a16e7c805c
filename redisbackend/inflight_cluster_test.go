//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// holding is goroutines that hold places of the key "k" of a cluster until they are stopped.
type holding struct {
	limit    inflight.Limit
	limiters []*inflight.Limiter // each as in a process of its own
	ctx      context.Context
	stop     context.CancelFunc
	all      sync.WaitGroup

	mu     sync.Mutex // guards what follows
	held   []held     // each place
	tokens []uint64   // of each grant
	lost   int        // grants
	failed int        // calls
}

// newHolding returns limiters of a cluster that grants places.
func newHolding(t *testing.T, c *testkit.Cluster, limiters int, limit inflight.Limit) *holding {
	h := &holding{limit: limit}
	h.ctx, h.stop = context.WithCancel(t.Context())
	for range limiters {
		l := newInFlight(t, redisbackend.New(onCluster(t, c)), inflight.WithStrict())
		h.limiters = append(h.limiters, l)
		acquired(t, l, "k", limit, 1).Release()
	}
	return h
}

// hold starts goroutines that hold n places each, again and again, each time for a random time up to most.
func (h *holding) hold(l *inflight.Limiter, goroutines int, n uint64, most time.Duration) {
	for range goroutines {
		h.all.Go(func() {
			for h.ctx.Err() == nil {
				h.holdOnce(l, n, rand.N(most))
			}
		})
	}
}

// holdOnce holds places for d, or until they are lost.
func (h *holding) holdOnce(l *inflight.Limiter, n uint64, d time.Duration) {
	grant, err := l.Acquire(h.ctx, "k", h.limit, n)
	if err != nil {
		h.mu.Lock()
		h.failed++
		h.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		return
	}
	begin := time.Now()
	end, valid := begin, true
	for {
		now := time.Now()
		if valid = grant.Valid(); !valid {
			break
		}
		if end = now; end.Sub(begin) >= d || h.ctx.Err() != nil {
			break
		}
		time.Sleep(min(d, 5*time.Millisecond))
	}
	grant.Release()
	h.mu.Lock()
	defer h.mu.Unlock()
	for range n {
		h.held = append(h.held, held{begin.UnixNano(), end.UnixNano()})
	}
	h.tokens = append(h.tokens, grant.Token())
	if !valid {
		h.lost++
	}
}

// end stops the goroutines. It returns the most places that were held at a time. No two grants have the same token.
func (h *holding) end(t *testing.T) (most int) {
	h.stop()
	h.all.Wait()
	slices.Sort(h.tokens)
	expect(t, len(slices.Compact(slices.Clone(h.tokens))) == len(h.tokens), "two grants have one token")
	return mostHeld(h.held)
}

// firstAfter returns how long after a time a place was granted first, or a negative time if none was.
func (h *holding) firstAfter(at time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := time.Duration(-1)
	for _, one := range h.held {
		if after := time.Duration(one.begin - at.UnixNano()); after > 0 && (first < 0 || after < first) {
			first = after
		}
	}
	return first
}

// await waits until something is true.
func await(t *testing.T, failure string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		expect(t, time.Since(start) < patience, "%s", failure)
	}
}

// ownerOf returns which primary has the slot of the key "k".
func ownerOf(t *testing.T, c *testkit.Cluster) int {
	t.Helper()
	owner := slices.IndexFunc(c.Primaries, func(s *testkit.Redis) bool {
		_, err := s.Do("HLEN", "{k:k}")
		return err == nil // and not MOVED
	})
	expect(t, owner >= 0, "no primary has the slot")
	return owner
}

// Places are held while their slot moves to another node, and back. The new node grants nothing for a lease, and
// whoever holds a place keeps it.
//
//evidence:redis Never more than Max places in flight while their slot moves
func TestPlacesInFlightOfASlotThatMoves(t *testing.T) {
	c := testkit.StartCluster(t, 2)
	limit := inflight.Limit{Max: 5, Lease: 3 * time.Second}
	h := newHolding(t, c, 3, limit)
	h.hold(h.limiters[0], 1, 2, 24*time.Hour)
	await(t, "no places are granted", func() bool { return h.limiters[0].Stats().InUse == 2 })
	for _, l := range h.limiters {
		h.hold(l, 4, 1, 40*time.Millisecond)
	}
	slot := c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", "k:k")
	from := ownerOf(t, c)
	for range 2 {
		time.Sleep(limit.Lease / 4)
		move(t, c.Primaries[from], c.Primaries[1-from], slot)
		moved := time.Now()
		from = 1 - from
		await(t, "no place is granted after the move", func() bool { return h.firstAfter(moved.Add(limit.Lease)) >= 0 })
		first := h.firstAfter(moved)
		t.Logf("a place is granted %v after the move", first)
		expect(t, first > limit.Lease*3/4, "a place is granted %v after the move", first)
	}
	most := h.end(t)
	t.Logf("%d places granted, %d lost, %d calls failed; %d of %d held at most", len(h.tokens), h.lost, h.failed, most, limit.Max)
	expect(t, most <= int(limit.Max), "%d of %d places are held", most, limit.Max)
	expect(t, h.lost == 0, "%d places are lost", h.lost)
}

// A process gets all places, and before the replica knows of them, it takes over. It is another birth: it grants
// nothing until the process has told it what it holds.
//
//evidence:redis Never more than Max places in flight after a failover that forgets them all
func TestPlacesInFlightSurviveAFailover(t *testing.T) {
	c := testkit.StartCluster(t, 3)
	limit := inflight.Limit{Max: 10, Lease: 8 * time.Second}
	h := newHolding(t, c, 6, limit)
	killed := failOverBehind(t, c, ownerOf(t, c), func() {
		h.hold(h.limiters[0], 1, limit.Max, 24*time.Hour)
		await(t, "no places are granted", func() bool { return h.limiters[0].Stats().InUse == limit.Max })
		for _, l := range h.limiters[1:] {
			h.hold(l, 4, 1, time.Second)
		}
	})
	over := time.Now()
	// The process needs its places no more when the new primary may grant others.
	time.Sleep(limit.Lease / 2)
	kept := h.limiters[0].Stats().InUse
	h.limiters[0].Close()
	await(t, "no place is granted after the failover", func() bool { return h.firstAfter(over) >= 0 })
	first := h.firstAfter(over)
	most := h.end(t)
	t.Logf("the replica takes over after %v; %d places are kept, %d calls failed; the next grant is %v later; %d of %d held at most: excess %d",
		over.Sub(killed), kept, h.failed, first, most, limit.Max, max(0, most-int(limit.Max)))
	expect(t, most <= int(limit.Max), "%d of %d places are held", most, limit.Max)
	expect(t, first > limit.Lease*3/4, "a place is granted %v after the failover", first)
}

// A primary that hands over to its replica, and takes over again before it has heard of a place that was granted
// meanwhile, has its run_id still, and what it had saved of the birth. It is another data set, as its replication id
// has changed.
func TestAPrimaryThatFailsBackIsAnotherDataSet(t *testing.T) {
	for _, strict := range []bool{true, false} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			c := testkit.StartCluster(t, 3)
			limit := inflight.Limit{Max: 1, Lease: 6 * time.Second}
			var opts []inflight.Option
			if strict {
				opts = append(opts, inflight.WithStrict())
			}
			limiter := func() *inflight.Limiter {
				return newInFlight(t, redisbackend.New(onCluster(t, c)), opts...)
			}
			one, two := limiter(), limiter()
			owner := ownerOf(t, c)
			first, second := c.Primaries[owner], c.Replicas[owner]
			acquired(t, one, "k", limit, 1).Release() // the birth is that of first
			await(t, "the place stays", func() bool {
				s, err := one.Peek(context.Background(), "k", limit)
				return err == nil && s.InUse == 0
			})
			offset := func(s *testkit.Redis) string {
				_, rest, _ := strings.Cut(s.Must(t, "INFO", "replication"), "master_repl_offset:")
				return strings.Fields(rest)[0]
			}
			await(t, "the replica does not know all", func() bool { return offset(first) == offset(second) })
			second.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER") // without votes, which nodes may refuse for two minutes
			await(t, "the primary does not follow its replica", func() bool {
				return strings.Contains(first.Must(t, "INFO", "replication"), "master_link_status:up")
			})
			for _, l := range []*inflight.Limiter{one, two} { // its client finds out
				_, err := l.Peek(context.Background(), "k", limit)
				noError(t, err)
			}
			first.Freeze(t) // it does not get what comes now
			second.Must(t, "CLIENT", "KILL", "TYPE", "replica")
			h := acquired(t, one, "k", limit, 1)
			second.Kill()
			first.Thaw(t)
			first.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
			over, granted := time.Now(), false
			for h.Valid() && !granted && time.Since(over) < limit.Lease/2 {
				_, granted, _ = two.TryAcquire(context.Background(), "k", limit, 1)
				time.Sleep(20 * time.Millisecond) // until its client has found the new primary
			}
			if strict {
				expect(t, !granted || !h.Valid(), "two places of one are held")
				return
			}
			expect(t, granted, "nothing is granted")
			await(t, "the loss is not noticed", func() bool { return one.Stats().Losses == 1 })
			expect(t, h.Valid() && time.Since(over) < limit.Lease, "the place has ended, or its loss was noticed after %v", time.Since(over))
		})
	}
}

// With WithStrict, a cluster that was flushed grants nothing for a lease, of no slot, and who holds places keeps them.
func TestAFlushOfAClusterIsALossOfData(t *testing.T) {
	c := testkit.StartPrimaries(t, 2)
	limit := inflight.Limit{Max: 2, Lease: 3 * time.Second}
	limiter := func() *inflight.Limiter {
		return newInFlight(t, redisbackend.New(onCluster(t, c)), inflight.WithStrict())
	}
	one, two := limiter(), limiter()
	var holds []*inflight.Hold
	keys := []string{"a", "b", "c", "d", "e", "f"}
	for _, key := range keys {
		holds = append(holds, acquired(t, one, key, limit, limit.Max))
	}
	for _, s := range c.Primaries {
		s.Must(t, "FLUSHALL")
	}
	flushed := time.Now()
	for time.Since(flushed) < 2*limit.Lease {
		for i := range keys {
			_, ok, err := two.TryAcquire(context.Background(), keys[i], limit, 1)
			var notYet *inflight.NotYetError
			expect(t, err == nil || errors.As(err, &notYet) && notYet.RetryAfter <= limit.Lease, "%v", err)
			expect(t, !ok, "a third place of two")
		}
		h, ok, _ := two.TryAcquire(context.Background(), fmt.Sprint("new", time.Now().UnixMilli()), limit, 1)
		expect(t, !ok || time.Since(flushed) > limit.Lease*9/10, "a slot that was never used grants after %v", time.Since(flushed))
		h.Release()
		time.Sleep(50 * time.Millisecond)
	}
	for i, h := range holds {
		expect(t, h.Valid(), "the places of %s are lost", keys[i])
	}
	expect(t, one.Stats().Losses == 1, "%d losses", one.Stats().Losses)
}

// A node that hangs costs no place of another, and nothing of it is refused: exchanges have a circuit for each node.
func TestANodeThatHangsCostsNoPlacesOfOthers(t *testing.T) {
	c := testkit.StartPrimaries(t, 2)
	limit := inflight.Limit{Max: 2, Lease: 4 * time.Second}
	l := newInFlight(t, redisbackend.New(onCluster(t, c)), inflight.WithTimeout(0))
	keys := [2][]string{}
	for i := 0; len(keys[0]) < 5 || len(keys[1]) < 5; i++ {
		key := fmt.Sprint("user:", i)
		slot, err := strconv.Atoi(c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", "k:"+key))
		noError(t, err)
		keys[slot/8192] = append(keys[slot/8192], key)
	}
	holds := [2][]*inflight.Hold{}
	for i := range holds {
		for _, key := range keys[i] { // also before it is known which node has which slots
			holds[i] = append(holds[i], acquired(t, l, key, limit, 1))
		}
	}
	time.Sleep(limit.Lease / 2)
	c.Primaries[0].Freeze(t)
	defer c.Primaries[0].Thaw(t)
	hung := time.Now()
	for time.Since(hung) < 2*limit.Lease {
		_, _, err := l.TryAcquire(context.Background(), keys[0][0], limit, 1)
		expect(t, errors.Is(err, window.ErrUnavailable), "of the node that hangs: %v", err)
		h, ok, err := l.TryAcquire(context.Background(), keys[1][0], limit, 1)
		expect(t, ok, "of the node that is there: %v", err)
		h.Release()
		time.Sleep(20 * time.Millisecond)
	}
	for i := range holds {
		for j, h := range holds[i] {
			expect(t, h.Valid() == (i == 1), "%s on node %d: its place is valid: %v", keys[i][j], i, h.Valid())
		}
	}
}
