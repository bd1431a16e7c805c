//go:build unix

package redisbackend_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// exchange makes a claim, which must succeed.
func exchange(t testing.TB, b *rediswindow.Backend, c window.Claim) window.Places {
	t.Helper()
	places := make([]window.Places, 1)
	noError(t, b.Exchange(context.Background(), []window.Claim{c}, places))
	noError(t, places[0].Err)
	return places[0]
}

// calls returns how often a server has executed a command.
func calls(t testing.TB, s *testkit.Redis, command string) int {
	m := regexp.MustCompile("cmdstat_" + command + `:calls=(\d+)`).FindStringSubmatch(s.Must(t, "INFO", "commandstats"))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	noError(t, err)
	return n
}

// While nothing is granted, those who wait ask now and then, and nobody is woken.
func TestWaitingInTheGraceCostsLittle(t *testing.T) {
	const lasts = 3
	for _, keys := range []int{1, 200} {
		s := testkit.StartRedis(t)
		ctx, cancel := context.WithTimeout(context.Background(), lasts*time.Second)
		defer cancel()
		for range 2 { // the first in line is not woken by whoever is behind it, either
			l := newInFlight(t, redisbackend.New(connect(t, s)), inflight.WithStrict())
			for i := range keys {
				go l.Acquire(ctx, fmt.Sprint("k", i), inflight.Limit{Max: 2}, 1)
			}
		}
		<-ctx.Done() // those in front leave: that may wake those behind
		scripts, published := calls(t, s, "evalsha"), calls(t, s, "publish")
		t.Logf("%d keys waited for %d s: %d scripts, %d PUBLISH", keys, lasts, scripts, published)
		expect(t, scripts > 0 && scripts < 4*keys*lasts+20, "%d keys: %d scripts in %d s", keys, scripts, lasts)
		expect(t, published <= keys, "%d keys: %d PUBLISH, though nothing has become free", keys, published)
	}
}

// A restart while somebody waits for each of many keys costs few scripts, and wakes nobody in vain.
func TestARestartWithManyWaitersCostsLittle(t *testing.T) {
	const keys, lasts = 200, 4
	for _, opts := range [][]inflight.Option{nil, {inflight.WithStrict()}} {
		s := testkit.StartRedisOnSocket(t)
		limit := inflight.Limit{Max: 1, Lease: 3 * time.Second}
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
		n := calls(t, s, "eval") + calls(t, s, "evalsha") + calls(t, s, "publish")
		t.Logf("%d keys, %d s after a restart: %d scripts and PUBLISH, %d of them PUBLISH", keys, lasts, n, calls(t, s, "publish"))
		expect(t, n < 2*keys*lasts, "%d scripts and PUBLISH in %d s, with %d keys", n, lasts, keys)
		expect(t, holder.Stats().Lost == 0, "%d places are lost", holder.Stats().Lost)
	}
}

// The first in line is woken once, when there is room for it, until it asks again.
func TestWhoeverIsWokenInVainIsNotWokenAgain(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	seq := uint64(0)
	claim := func(process string, held uint64, wants ...window.Want) {
		seq++
		exchange(t, b, window.Claim{Key: "k", Process: process, Seq: seq, Lease: time.Minute, Held: held, HeldMax: 5, Wants: wants, Wake: func() {}})
	}
	claim("holds", 0, window.Want{N: 5, Max: 5})
	for round := range 2 {
		claim("waits", 0, window.Want{N: 2, Max: 5, Wait: true})
		for _, held := range []uint64{5, 4, 3, 2, 5} {
			claim("holds", held)
		}
		expect(t, calls(t, s, "publish") == round+1, "round %d: %d PUBLISH", round, calls(t, s, "publish"))
	}
}

// A hash lives as long as what it holds is renewed, and a lease more.
func TestAHashOfRenewedPlacesStays(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s)
	b := redisbackend.New(client)
	const lease = 200 * time.Millisecond
	seq := uint64(0)
	claim := func(held uint64) window.Claim {
		seq++
		return window.Claim{Key: "k", Process: "p", Seq: seq, Lease: lease, Held: held, HeldMax: 2}
	}
	for start := time.Now(); time.Since(start) < 8*lease; time.Sleep(lease / 4) {
		p := exchange(t, b, claim(2))
		expect(t, p.Used == 2 && p.Forgotten == (seq == 1), "claim %d: %+v", seq, p)
		left, err := redis(t, client, "PTTL", "throttr:{k:k}:f1:").AsInt64()
		noError(t, err)
		expect(t, left > lease.Milliseconds(), "the hash expires in %d ms, though its places end in %v", left, lease)
	}
	p := exchange(t, b, claim(0))
	expect(t, p.Used == 0, "%+v", p)
}

// Strict claims are granted nothing for a lease after the server has been started, whatever has been asked before, and
// those on another prefix are not granted later for it.
func TestANewPrefixIsAsOldAsItsServer(t *testing.T) {
	const lease = 2 * time.Second
	started := time.Now()
	s := testkit.StartRedis(t)
	client := connect(t, s)
	var first time.Duration
	for i := 0; first == 0; i++ {
		b := redisbackend.New(client, rediswindow.WithPrefix(fmt.Sprint("p", i, ":")))
		p := exchange(t, b, window.Claim{Key: "k", Process: "p", Seq: 1, Lease: lease, Strict: true, Wants: []window.Want{{N: 1, Max: 1}}})
		expect(t, (p.Tokens == nil) == (p.Grace > 0) && p.Grace <= lease, "%+v", p)
		if after := time.Since(started); p.Tokens != nil {
			first = after
		}
		expect(t, time.Since(started) < lease+patience, "nothing is granted")
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("the first place is granted %v after the start", first)
	expect(t, first >= lease, "a place is granted %v after the start", first)
}

// A server that has been up for longer than a lease, and has lost data or hides that it did, is a new data set for a
// prefix that was never used.
func TestWhatHasLostDataIsNew(t *testing.T) {
	const lease = 100 * time.Millisecond
	commands := [][]string{{"FLUSHALL"}, {"SWAPDB", "0", "1"}, {"CONFIG", "RESETSTAT"}}
	var clients []rueidis.Client
	for range commands {
		clients = append(clients, connect(t, testkit.StartRedis(t)))
	}
	time.Sleep(2*time.Second + 2*lease)
	for i, command := range commands {
		grants := func(prefix string, strict bool) bool {
			b := redisbackend.New(clients[i], rediswindow.WithPrefix(prefix))
			p := exchange(t, b, window.Claim{Key: "k", Process: "p", Seq: 1, Lease: lease, Strict: strict, Wants: []window.Want{{N: 1, Max: 1}}})
			expect(t, (p.Tokens == nil) == (p.Grace > 0) && p.Grace <= lease, "%+v", p)
			return p.Tokens != nil
		}
		expect(t, grants("never used", true), "it has lost nothing")
		redis(t, clients[i], command...)
		expect(t, !grants("strict", true), "after %v", command)
		expect(t, grants("loose", false), "after %v", command)
	}
}

// A node without a replica is gone, and another one gets its slots without what they had, as redis-cli --cluster fix
// does. It has been up for long, and grants nothing for a lease.
func TestASlotWhoseNodeIsGoneIsNew(t *testing.T) {
	c := testkit.StartPrimaries(t, 2)
	limit := inflight.Limit{Max: 1, Lease: 4 * time.Second}
	client := onCluster(t, c)
	one, two := newInFlight(t, redisbackend.New(client), inflight.WithStrict()), newInFlight(t, redisbackend.New(client), inflight.WithStrict())
	time.Sleep(limit.Lease + 2*time.Second)
	h := acquired(t, one, "k", limit, 1)
	gone := ownerOf(t, c)
	left := c.Primaries[1-gone]
	c.Primaries[gone].Kill()
	from, to := strconv.Itoa(gone*8192), strconv.Itoa(gone*8192+8191)
	left.Must(t, "CLUSTER", "DELSLOTSRANGE", from, to)
	left.Must(t, "CLUSTER", "ADDSLOTSRANGE", from, to)
	left.Must(t, "CLUSTER", "BUMPEPOCH")
	granted := false
	for begun := time.Now(); h.Valid() && !granted && time.Since(begun) < limit.Lease/2; time.Sleep(10 * time.Millisecond) {
		_, granted, _ = two.TryAcquire(context.Background(), "k", limit, 1)
	}
	expect(t, !granted || !h.Valid(), "two places of one are held")
	h.Release()
	acquired(t, two, "k", limit, 1)
}

// The first place of a slot, and with it the slot's birth, is lost in a failover. The new primary knows that it was
// a replica, and grants nothing for a lease.
func TestTheFirstPlaceOfASlotIsLostInAFailover(t *testing.T) {
	c := testkit.StartCluster(t, 3)
	limit := inflight.Limit{Max: 1, Lease: 6 * time.Second}
	limiter := func() *inflight.Limiter {
		return newInFlight(t, redisbackend.New(onCluster(t, c)), inflight.WithStrict())
	}
	one, two := limiter(), limiter()
	owner := ownerOf(t, c)
	primary, replica := c.Primaries[owner], c.Replicas[owner]
	time.Sleep(limit.Lease + 2*time.Second) // until the servers have been up for longer than a lease

	replica.Freeze(t) // the replica does not get what comes now
	primary.Must(t, "CLIENT", "KILL", "TYPE", "replica")
	h1 := acquired(t, one, "k", limit, 1)
	granted := time.Now()
	primary.Kill()
	replica.Thaw(t)
	replica.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	var h2 *inflight.Hold
	for h2 == nil {
		var err error
		if h2, _, err = two.TryAcquire(context.Background(), "k", limit, 1); err != nil {
			time.Sleep(20 * time.Millisecond) // until its client has found the new primary
		}
		expect(t, h2 == nil || !h1.Valid(), "2 places of a Max of 1 are held")
		if time.Since(granted) > limit.Lease*3/4 {
			break
		}
	}
	expect(t, h2 == nil, "a place was granted %v after the first one", time.Since(granted))
	h1.Release()
	acquired(t, two, "k", limit, 1).Release()
}
