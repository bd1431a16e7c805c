//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// A restart while somebody waits for each of many keys costs few scripts, and wakes nobody in vain.
func TestARestartWithManyWaitersCostsLittle(t *testing.T) {
	const keys, lasts = 200, 3
	limit := inflight.Limit{Max: 1, Lease: 10 * time.Second} // a busy machine restarts a server in a second or more
	for _, opts := range [][]inflight.Option{nil, {inflight.WithStrict()}} {
		s := testkit.StartRedisOnSocket(t)
		holder, waiter := newInFlight(t, redisbackend.New(connect(t, s)), opts...), newInFlight(t, redisbackend.New(connect(t, s)), opts...)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for i := range keys {
			acquired(t, holder, fmt.Sprint("k", i), limit, 1)
			go waiter.Acquire(ctx, fmt.Sprint("k", i), limit, 1)
		}
		await(t, "nobody waits", func() bool { return waiter.Stats().Waiting == keys })
		s.Kill()
		s.Restart(t) // its statistics begin anew
		time.Sleep(lasts * time.Second)
		published := timesCalled(t, s, "publish")
		scripts := timesCalled(t, s, "eval") + timesCalled(t, s, "evalsha")
		t.Logf("%d keys, %d s after a restart: %d scripts, %d PUBLISH", keys, lasts, scripts, published)
		expect(t, scripts < 2*keys*lasts && published <= keys, "%d scripts and %d PUBLISH in %d s, with %d keys", scripts, published, lasts, keys)
		expect(t, holder.Stats().Lost == 0, "%d places are lost", holder.Stats().Lost)
	}
}

// Strict claims are granted nothing for a lease after the server has been started, whatever has been asked before, and
// those on another prefix are not granted later for it.
func TestANewPrefixIsAsOldAsItsServer(t *testing.T) {
	const lease = 2 * time.Second
	started := time.Now()
	client := connect(t, testkit.StartRedis(t))
	for i, granted := 0, false; !granted; i++ {
		b := redisbackend.New(client, rediswindow.WithPrefix(fmt.Sprint("p", i, ":")))
		p := exchange(t, b, window.Claim{Key: "k", Process: "p", Seq: 1, Lease: lease, Strict: true, Wants: []window.Want{{N: 1, Max: 1}}})
		granted = p.Tokens != nil
		expect(t, granted == (p.Grace == 0) && p.Grace <= lease, "%+v", p)
		after := time.Since(started)
		expect(t, !granted || after >= lease, "a place is granted %v after the start", after)
		expect(t, after < lease+patience, "nothing is granted")
		time.Sleep(20 * time.Millisecond)
	}
}

// A server that has been up for longer than a lease, and has lost data or hides that it did, is a new data set for a
// prefix that was never used.
func TestWhatHasLostDataIsNew(t *testing.T) {
	const lease = 100 * time.Millisecond
	commands := [][]string{{"FLUSHALL"}, {"SWAPDB", "0", "1"}, {"CONFIG", "RESETSTAT"}}
	var servers []*testkit.Redis
	for range commands {
		servers = append(servers, testkit.StartRedis(t))
	}
	time.Sleep(2*time.Second + 2*lease)
	for i, command := range commands {
		client := connect(t, servers[i])
		grants := func(prefix string, strict bool) bool {
			b := redisbackend.New(client, rediswindow.WithPrefix(prefix))
			p := exchange(t, b, window.Claim{Key: "k", Process: "p", Seq: 1, Lease: lease, Strict: strict, Wants: []window.Want{{N: 1, Max: 1}}})
			expect(t, (p.Tokens == nil) == (p.Grace > 0) && p.Grace <= lease, "%+v", p)
			return p.Tokens != nil
		}
		expect(t, grants("never used", true), "it has lost nothing")
		servers[i].Must(t, command...)
		expect(t, !grants("strict", true), "after %v", command)
		expect(t, grants("loose", false), "after %v", command)
	}
}

// A server that has loaded what it had saved may lack what it had not: a place that was granted since.
func TestAServerThatWasStartedAgainGrantsNothingForALease(t *testing.T) {
	s := testkit.StartRedisOnSocket(t)
	limit := inflight.Limit{Max: 1, Lease: 2 * time.Second}
	one, _ := twoStrict(t, func() rueidis.Client { return connect(t, s) })
	acquired(t, one, "other", limit, 1).Release()
	s.Must(t, "SAVE")
	h := acquired(t, one, "k", limit, 1)
	s.Kill()
	s.Restart(t)
	start := time.Now()
	neverTwo(t, h, newInFlight(t, redisbackend.New(connect(t, s)), inflight.WithStrict()), limit)
	expect(t, time.Since(start) >= limit.Lease*9/10, "a place is granted %v after the start", time.Since(start))
}

// With WithStrict, a store that was flushed grants nothing for a lease, of no slot, and who holds places keeps them. It is
// one loss of data, apart from that of servers that have not been up for a lease.
func TestAFlushIsALossOfData(t *testing.T) {
	limit := inflight.Limit{Max: 2, Lease: 4 * time.Second} // a new client has a quarter of it to find a busy node
	server := testkit.StartRedis(t)
	cluster := testkit.StartCluster(t, 2, 0)
	time.Sleep(limit.Lease + 2*time.Second) // until the servers have been up for longer than a lease
	for name, servers := range map[string][]*testkit.Redis{"server": {server}, "cluster": cluster.Primaries} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := twoStrict(t, func() rueidis.Client { return connect(t, servers[0]) })
			holds := map[string]*inflight.Hold{}
			for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
				holds[key] = acquired(t, one, key, limit, limit.Max)
			}
			expect(t, one.Stats().Losses == 0, "%d losses before", one.Stats().Losses)
			for _, s := range servers {
				s.Must(t, "FLUSHALL")
			}
			for flushed := time.Now(); time.Since(flushed) < limit.Lease*3/2; time.Sleep(50 * time.Millisecond) {
				for key := range holds {
					_, ok, err := two.TryAcquire(context.Background(), key, limit, 1)
					var later *inflight.NotYetError
					waits := err == nil || errors.As(err, &later) && later.RetryAfter <= limit.Lease
					expect(t, !ok && waits, "a place is granted: %v, %v", ok, err)
				}
				h, ok, _ := two.TryAcquire(context.Background(), fmt.Sprint("new", time.Now().UnixMilli()), limit, 1)
				expect(t, !ok || time.Since(flushed) > limit.Lease*9/10, "a key that was never used is granted after %v", time.Since(flushed))
				h.Release()
			}
			for key, h := range holds {
				expect(t, h.Valid(), "the places of %s are lost", key)
			}
			expect(t, one.Stats().Losses == 1, "%d losses", one.Stats().Losses)
		})
	}
}

// takeOverBehind kills the primary of the key "k" when its replica has missed what is written while the function is
// called, and has the replica take over: without votes, which nodes may refuse for two minutes. It returns when the
// primary was killed.
func takeOverBehind(t *testing.T, c *testkit.Cluster, missed func()) (killed time.Time) {
	t.Helper()
	owner := ownerOf(t, c)
	primary, replica := c.Primaries[owner], c.Replicas[owner]
	replica.Freeze(t)
	primary.Must(t, "CLIENT", "KILL", "TYPE", "replica") // otherwise the system keeps for it what it is sent
	missed()
	killed = time.Now()
	primary.Kill()
	replica.Thaw(t)
	replica.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	return killed
}

// All places but one are held while their slot moves to another node, and back. The new node grants nothing for a
// lease, and whoever holds a place keeps it.
func TestPlacesInFlightOfASlotThatMoves(t *testing.T) {
	c := testkit.StartCluster(t, 2, 2)
	limit := inflight.Limit{Max: 5, Lease: 3 * time.Second}
	one, two := twoStrict(t, func() rueidis.Client { return onCluster(t, c) })
	kept := acquired(t, one, "k", limit, limit.Max-1)
	ctx, stop := context.WithCancel(t.Context())
	var over atomic.Bool
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				h, granted, _ := two.TryAcquire(ctx, "k", limit, 2) // errors are of nodes that can't tell yet
				if granted && h.Valid() {
					over.Store(true)
				}
				h.Release()
				time.Sleep(time.Millisecond)
			}
		})
	}
	slot := c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", "k:k")
	from := ownerOf(t, c)
	for range 2 {
		time.Sleep(limit.Lease / 4)
		begun := time.Now()
		move(t, c.Primaries[from], c.Primaries[1-from], slot)
		from = 1 - from
		acquired(t, two, "k", limit, 1).Release()
		expect(t, time.Since(begun) >= limit.Lease, "a place is granted %v after the move has begun", time.Since(begun))
	}
	stop()
	all.Wait()
	expect(t, !over.Load() && kept.Valid(), "more than %d places are held, or one is lost", limit.Max)
	expect(t, one.Stats().Lost+two.Stats().Lost == 0, "places are lost")
}

// A process gets all places, and before the replica knows of them, it takes over. It is another birth: it grants
// nothing for a lease, until the process has told it what it holds. If these are the first places of the slot, the birth
// is lost, too: the new primary knows that it was a replica.
func TestPlacesInFlightSurviveAFailover(t *testing.T) {
	for name, known := range map[string]bool{"of a slot that is used": true, "the first of a slot": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testkit.StartCluster(t, 3, 3)
			limit := inflight.Limit{Max: 10, Lease: 5 * time.Second}
			one, two := twoStrict(t, func() rueidis.Client { return onCluster(t, c) })
			if known {
				acquired(t, two, "k", limit, 1).Release()
			}
			time.Sleep(limit.Lease + 2*time.Second) // until the servers have been up for longer than a lease
			var h *inflight.Hold
			killed := takeOverBehind(t, c, func() { h = acquired(t, one, "k", limit, limit.Max) })
			neverTwo(t, h, two, limit)
			expect(t, time.Since(killed) > limit.Lease*3/4, "a place is granted %v after the failover", time.Since(killed))
		})
	}
}

// A primary that hands over to its replica, and takes over again before it has heard of a place that was granted
// meanwhile, has its run_id still, and what it had saved of the birth. It is another data set, as its replication id
// has changed.
func TestAPrimaryThatFailsBackIsAnotherDataSet(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	limit := inflight.Limit{Max: 1, Lease: 6 * time.Second}
	one, two := twoStrict(t, func() rueidis.Client { return onCluster(t, c) })
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
	second.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
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
	neverTwo(t, h, two, limit)
}

// A node without a replica is gone, and another one gets its slots without what they had, as redis-cli --cluster fix
// does. It has been up for long, and grants nothing for a lease.
func TestASlotWhoseNodeIsGoneIsNew(t *testing.T) {
	c := testkit.StartCluster(t, 2, 0)
	limit := inflight.Limit{Max: 1, Lease: 6 * time.Second} // the client has half of it to find the other node
	one, two := twoStrict(t, func() rueidis.Client { return onCluster(t, c) })
	time.Sleep(limit.Lease + 2*time.Second)
	h := acquired(t, one, "k", limit, 1)
	gone := ownerOf(t, c)
	left := c.Primaries[1-gone]
	c.Primaries[gone].Kill()
	from, to := strconv.Itoa(gone*8192), strconv.Itoa(gone*8192+8191)
	left.Must(t, "CLUSTER", "DELSLOTSRANGE", from, to)
	left.Must(t, "CLUSTER", "ADDSLOTSRANGE", from, to)
	left.Must(t, "CLUSTER", "BUMPEPOCH")
	neverTwo(t, h, two, limit)
}
