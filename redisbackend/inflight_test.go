//go:build unix

package redisbackend_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
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
// those on another prefix are not granted later for it. A server that has been up for longer, and has lost data or
// hides that it did, is a new data set for a prefix that was never used.
func TestANewPrefixIsAsOldAsTheDataOfItsServer(t *testing.T) {
	commands := [][]string{{"FLUSHALL"}, {"SWAPDB", "0", "1"}, {"CONFIG", "RESETSTAT"}}
	var servers []*testkit.Redis
	var clients []rueidis.Client
	var started time.Time // the last one
	for range commands {
		started = time.Now()
		servers = append(servers, testkit.StartRedis(t))
		clients = append(clients, connect(t, servers[len(servers)-1]))
	}
	grants := func(client rueidis.Client, prefix string, lease time.Duration, strict bool) bool {
		b := redisbackend.New(client, rediswindow.WithPrefix(prefix))
		p := exchange(t, b, window.Claim{Lease: lease, Strict: strict, Wants: []window.Want{{N: 1, Max: 1}}})
		expect(t, (p.Tokens == nil) == (p.Grace > 0) && p.Grace <= lease, "%+v", p)
		return p.Tokens != nil
	}
	const lease = 2 * time.Second
	for i := 0; !grants(clients[len(clients)-1], fmt.Sprint("p", i, ":"), lease, true); i++ {
		expect(t, time.Since(started) < lease+patience, "nothing is granted")
		time.Sleep(20 * time.Millisecond)
	}
	expect(t, time.Since(started) >= lease, "a place is granted %v after the start", time.Since(started))
	for i, command := range commands {
		expect(t, grants(clients[i], "never used", lease/20, true), "it has lost nothing")
		servers[i].Must(t, command...)
		expect(t, !grants(clients[i], "strict", lease/20, true), "after %v", command)
		expect(t, grants(clients[i], "loose", lease/20, false), "after %v", command)
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

// With WithStrict, a store that was flushed grants nothing for a lease, of no slot, and who holds places keeps them. It
// is one loss of data, apart from that of servers that have not been up for a lease.
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

// All places but one are held while their slot moves to another node, and back. The new node grants nothing for a
// lease, and whoever holds a place keeps it.
func TestPlacesInFlightOfASlotThatMoves(t *testing.T) {
	c := testkit.StartCluster(t, 2, 2)
	limit := inflight.Limit{Max: 5, Lease: 3 * time.Second}
	one, two := twoStrict(t, func() rueidis.Client { return onCluster(t, c) })
	kept := acquired(t, one, "k", limit, limit.Max-1)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				h, granted, _ := two.TryAcquire(ctx, "k", limit, 2) // errors are of nodes that can't tell yet
				if granted && h.Valid() {
					t.Errorf("more than %d places are held", limit.Max)
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
	expect(t, kept.Valid() && one.Stats().Lost+two.Stats().Lost == 0, "places are lost")
}

// switchOver has a replica take over when it knows all of its primary, which follows it then, and the clients know.
func switchOver(t *testing.T, primary, replica *testkit.Redis, clients ...*inflight.Limiter) {
	t.Helper()
	offset := func(s *testkit.Redis) string {
		_, rest, _ := strings.Cut(s.Must(t, "INFO", "replication"), "master_repl_offset:")
		return strings.Fields(rest)[0]
	}
	await(t, "the replica does not know all", func() bool { return offset(primary) == offset(replica) })
	replica.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	await(t, "the primary does not follow its replica", func() bool {
		return strings.Contains(primary.Must(t, "INFO", "replication"), "master_link_status:up")
	})
	for _, l := range clients {
		_, err := l.Peek(context.Background(), "k", inflight.Limit{Max: 1})
		noError(t, err)
	}
}

// A process gets all places, and before the replica knows of them, it takes over. It is another birth: it grants
// nothing for a lease, until the process has told it what it holds.
func TestPlacesInFlightSurviveAFailover(t *testing.T) {
	for name, slot := range map[string]struct{ used, back bool }{
		"of a slot that is used": {used: true},
		"the first of a slot":    {}, // the birth is lost, too: the new primary knows that it was a replica
		// The new primary has its run_id still, and what it had saved of the birth. Its replication id has changed.
		"of a primary that fails back": {used: true, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testkit.StartCluster(t, 3, 3)
			limit := inflight.Limit{Max: 10, Lease: 5 * time.Second}
			one, two := twoStrict(t, func() rueidis.Client { return onCluster(t, c) })
			owner := ownerOf(t, c)
			primary, replica := c.Primaries[owner], c.Replicas[owner]
			if slot.used {
				acquired(t, two, "k", limit, 1).Release()
				await(t, "the place stays", func() bool {
					s, err := one.Peek(context.Background(), "k", limit)
					return err == nil && s.InUse == 0
				})
			}
			if slot.back {
				switchOver(t, primary, replica, one, two)
				primary, replica = replica, primary
			}
			time.Sleep(limit.Lease + 2*time.Second) // until the servers have been up for longer than a lease
			replica.Freeze(t)
			primary.Must(t, "CLIENT", "KILL", "TYPE", "replica") // otherwise the system keeps for it what it is sent
			h := acquired(t, one, "k", limit, limit.Max)
			killed := time.Now()
			primary.Kill()
			replica.Thaw(t)
			replica.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER") // without votes, which nodes may refuse for two minutes
			neverTwo(t, h, two, limit)
			expect(t, time.Since(killed) > limit.Lease*3/4, "a place is granted %v after the failover", time.Since(killed))
		})
	}
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

// Processes hold places while they are killed and stopped, and while Redis is restarted. Each writes what it holds,
// and until when it could still ask Valid, to a pipe.
const (
	flightProcesses = 6
	flightHeld      = 20 * time.Millisecond
)

var (
	flightLimit = inflight.Limit{Name: "flight", Max: 10, Lease: time.Second}
	flightTime  = flag.Duration("inflight.time", 12*time.Second, "how long TestPlacesInFlightSurvive runs")
)

// TestMain runs the tests, or is a process that a test has started to hold places of the server of a URL.
func TestMain(m *testing.M) {
	if url := os.Getenv("THROTTR_TEST_URL"); url != "" {
		backend, err := throttr.Open(context.Background(), url+"?lazy=true")
		check(err)
		l := inflight.New(backend, inflight.WithLogger(nil), inflight.WithStrict())
		for range 8 {
			go holdAndLog(l)
		}
		select {} // until the process is killed
	}
	os.Exit(m.Run())
}

// check ends a process that has failed with a panic, which the test sees.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// span is that a place was held from a time to another one, in nanoseconds.
type span struct{ From, To int64 }

// holdAndLog holds places, one after the other, and writes spans of that.
func holdAndLog(l *inflight.Limiter) {
	for {
		h, err := l.Acquire(context.Background(), "k", flightLimit, 1)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		begin := time.Now()
		for last, now := begin, begin; h.Valid(); last, now = now, time.Now() {
			check(binary.Write(os.Stdout, binary.LittleEndian, span{last.UnixNano(), now.UnixNano()}))
			if now.Sub(begin) >= flightHeld {
				break
			}
			time.Sleep(flightHeld / 5)
		}
		h.Release()
	}
}

// unreliable is what comes from a connection: at times it is late, and at times it ends, even between a request and
// its response.
type unreliable struct{ io.Reader }

// Read implements io.Reader.
func (u unreliable) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if rand.IntN(100) == 0 {
		time.Sleep(rand.N(flightLimit.Lease / 2))
	}
	if rand.IntN(500) == 0 {
		return 0, io.EOF
	}
	return n, err
}

// flight is a run of processes. One reaches the server by a proxy.
type flight struct {
	t       *testing.T
	s       *testkit.Redis
	proxy   string                        // its address
	held    [flightProcesses]bytes.Buffer // spans; those of the processes that run now and ran before
	running [flightProcesses]*exec.Cmd
	frozen  [flightProcesses]time.Time // until when
	stopped sync.WaitGroup
	faults  map[string]int // how many of each kind were made
}

// spawn starts a process.
func (f *flight) spawn(i int) {
	url := "redis+unix://" + f.s.Addr
	if i == 0 {
		url = "redis://" + f.proxy
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "THROTTR_TEST_URL="+url)
	cmd.Stdout = &f.held[i]
	cmd.Stderr = new(strings.Builder)
	noError(f.t, cmd.Start())
	f.running[i] = cmd
}

// kill ends a process. What the race detector reports of it, and its panics, are failures of the test.
func (f *flight) kill(i int) {
	f.running[i].Process.Kill()
	f.running[i].Wait()
	written := fmt.Sprint(f.running[i].Stderr)
	expect(f.t, !strings.Contains(written, "DATA RACE") && !strings.Contains(written, "panic: "), "a process: %s", written)
}

// stop stops a process for up to two leases.
func (f *flight) stop(i int) {
	p, d := f.running[i].Process, rand.N(2*flightLimit.Lease)
	f.frozen[i] = time.Now().Add(d + 100*time.Millisecond)
	noError(f.t, p.Signal(syscall.SIGSTOP))
	f.stopped.Go(func() {
		time.Sleep(d)
		p.Signal(syscall.SIGCONT)
	})
}

// run runs processes for some time, with faults.
func (f *flight) run(d time.Duration) {
	for i := range f.running {
		f.spawn(i)
	}
	end, restart := time.Now().Add(d), time.Now().Add(4*time.Second)
	between := 500 * time.Millisecond // each fault costs a lease of a sixth of the places, at most
	if d >= time.Minute {
		between *= 2
	}
	for time.Now().Before(end) {
		time.Sleep(between/2 + rand.N(between))
		i := rand.IntN(flightProcesses)
		if time.Now().Before(f.frozen[i]) {
			continue
		}
		fault := []string{"kill", "kill", "stop", "stop", "cut"}[rand.IntN(5)]
		f.faults[fault]++
		switch fault {
		case "kill":
			f.kill(i)
			f.spawn(i)
		case "stop":
			f.stop(i)
		case "cut":
			f.s.Must(f.t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}
		if time.Now().After(restart) {
			f.s.Kill()
			f.s.Restart(f.t)
			f.faults["restart"]++
			restart = time.Now().Add(15 * time.Second) // each costs a lease
		}
	}
	for i := range f.running {
		f.kill(i)
	}
	f.stopped.Wait()
}

// change is that a place was held from then on, or not any more.
type change struct{ at, by int64 }

// changes returns what processes have written, in order. Whoever ends at a time does so before others begin.
func (f *flight) changes() (all []change) {
	for i := range f.held {
		spans := make([]span, f.held[i].Len()/binary.Size(span{}))
		noError(f.t, binary.Read(&f.held[i], binary.LittleEndian, spans))
		for _, s := range spans {
			all = append(all, change{s.From, 1}, change{s.To, -1})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	return all
}

// TestPlacesInFlightSurvive has processes hold places while faults are made.
func TestPlacesInFlightSurvive(t *testing.T) {
	s := testkit.StartRedisOnSocket(t)
	f := &flight{t: t, s: s, faults: map[string]int{}}
	f.proxy = testkit.Proxy(t, func() *testkit.Redis { return s }, func(r io.Reader, _ bool) io.Reader { return unreliable{r} })
	f.run(*flightTime)
	all := f.changes()
	expect(t, len(all) > 0, "nothing was held")
	var held, most, sum, last int64
	for _, c := range all {
		sum += held * (c.at - last)
		last = c.at
		held += c.by
		most = max(most, held)
	}
	used := float64(sum) / float64(flightLimit.Max) / float64(last-all[0].at)
	t.Logf("%v: %d of %d held at most, %.0f %% used", f.faults, most, flightLimit.Max, 100*used)
	expect(t, most <= int64(flightLimit.Max), "%d of %d places are held", most, flightLimit.Max)
	expect(t, used >= 0.2, "%.0f %% of the places are used", 100*used)
}

// handOver returns how long it takes from a release to the next holder in another process: the median of some rounds.
func handOver(t *testing.T, one, two *inflight.Limiter, limit inflight.Limit, rounds int) time.Duration {
	var all []time.Duration
	for range rounds {
		h := acquired(t, one, "k", limit, limit.Max)
		start := make(chan time.Time, 1)
		go func() {
			await(t, "nobody waits", func() bool {
				s, err := one.Peek(context.Background(), "k", limit)
				return err == nil && s.Waiting == 1
			})
			start <- time.Now()
			h.Release()
		}()
		next := acquired(t, two, "k", limit, 1)
		all = append(all, time.Since(<-start))
		next.Release()
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// The next holder does not wait for the next time that its process asks, unless the client can't subscribe.
func TestAReleaseWakesTheNextHolder(t *testing.T) {
	s := testkit.StartRedis(t)
	limit := inflight.Limit{Name: "two words", Max: 1, Lease: 4 * time.Second} // who waits asks every 500 ms
	one, two := newInFlight(t, redisbackend.New(connect(t, s))), newInFlight(t, redisbackend.New(connect(t, s)))
	handOver(t, one, two, limit, 3) // until the subscription is there
	took := handOver(t, one, two, limit, 9)
	expect(t, took < 100*time.Millisecond, "the next holder waits for %v", took)
	mute := newInFlight(t, rediswindow.New(plainClient{connect(t, s)}))
	took = handOver(t, one, mute, limit, 3)
	expect(t, took > 10*time.Millisecond, "somebody woke the next holder: %v", took)
}

// The first in line is woken once, when there is room for it, until it asks again. It is not woken by those behind it
// while nothing may be granted, although there is room.
func TestWhoIsWoken(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	claim := func(c window.Claim, published int) {
		t.Helper()
		c.Key = fmt.Sprint("strict: ", c.Strict)
		c.Lease = time.Minute
		c.HeldMax = 5
		c.Wake = func() {}
		p := exchange(t, b, c)
		expect(t, !c.Strict || p.Grace > 0 && p.Used == 0, "%+v", p)
		got := timesCalled(t, s, "publish")
		expect(t, got == published, "%+v: %d PUBLISH, want %d", c, got, published)
	}
	for range 3 {
		for _, process := range []string{"first", "second"} {
			claim(window.Claim{Process: process, Strict: true, Wants: []window.Want{{N: 1, Max: 5, Wait: true}}}, 0)
		}
	}
	claim(window.Claim{Process: "holds", Wants: []window.Want{{N: 5, Max: 5}}}, 0)
	for round := range 2 {
		claim(window.Claim{Process: "waits", Wants: []window.Want{{N: 2, Max: 5, Wait: true}}}, round)
		for i, held := range []uint64{5, 4, 3, 2, 5} { // the third one makes room
			claim(window.Claim{Process: "holds", Held: held}, round+min(i/2, 1))
		}
	}
}

// What is wrong with one key is no error of the claims that share its script, not even if the data set is verified.
func TestAClaimThatFailsFailsAlone(t *testing.T) {
	for want, command := range map[string][]string{
		"WRONGTYPE": {"SET", "throttr:{k:bad}:f1:", "text"},
		"NOPERM":    {"ACL", "SETUSER", "default", "resetkeys", "~throttr:{k:good*", "~throttr:{b}:born1"},
	} {
		s := testkit.StartRedis(t)
		b := redisbackend.New(connect(t, s))
		s.Must(t, command...)
		var claims []window.Claim
		for i, key := range []string{"good", "bad", "good too"} {
			claims = append(claims, window.Claim{Key: key, Process: "p", Seq: uint64(i + 1), Lease: time.Second, Wants: []window.Want{{N: 1, Max: 5}}})
		}
		places := make([]window.Places, 3)
		noError(t, b.Exchange(t.Context(), claims, places))
		for _, i := range []int{0, 2} {
			expect(t, places[i].Err == nil && !places[i].Late && places[i].Tokens != nil, "%s: %+v", claims[i].Key, places[i])
		}
		err := places[1].Err
		expect(t, err != nil && strings.HasPrefix(err.Error(), `rediswindow: exchange "bad": `+want), "%v", err)
	}
}

// A server without memory grants nothing to a process that holds nothing, but places are renewed and given back.
func TestPlacesAreKeptAndGivenBackWithoutMemory(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	l := newInFlight(t, b)
	noError(t, l.Check(inflight.Limit{}))
	expect(t, b.Stats().Stores[0].Calls == 0, "Check asks the store")
	exchange(t, b, window.Claim{Process: "other", Lease: time.Minute, Held: 1, HeldMax: 5})
	exchange(t, b, window.Claim{Lease: time.Minute, Held: 2, HeldMax: 5})
	s.Must(t, "CONFIG", "SET", "maxmemory", "1")
	for _, held := range []uint64{2, 1, 0} {
		wants := []window.Want{{N: 1, Max: 5}}[:min(held, 1)]
		p := exchange(t, b, window.Claim{Lease: time.Minute, Held: held, HeldMax: 5, Wants: wants})
		expect(t, p.Used == 1+held+uint64(len(wants)), "%d are used, and one process holds %d", p.Used, held)
	}
	_, _, err := l.TryAcquire(t.Context(), "k", inflight.Limit{Max: 5}, 1)
	expect(t, errors.Is(err, throttr.ErrFull), "%v", err)
}

// A hash does not grow with its places. It lives as long as they are renewed, and a lease more.
func TestAHashOfPlacesIsSmallAndStaysWhileTheyAreRenewed(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	const lease, places, hash = 600 * time.Millisecond, 20_000, "throttr:{k:k}:f1:"
	number := func(command ...string) int {
		n, err := strconv.Atoi(s.Must(t, command...))
		noError(t, err)
		return n
	}
	wants := slices.Repeat([]window.Want{{N: 100, Max: places}}, 100)
	renewed := time.Now()
	p := exchange(t, b, window.Claim{Lease: lease, Held: places / 2, HeldMax: places, Wants: wants})
	expect(t, p.Used == places && p.Forgotten, "%+v", p)
	for start := renewed; time.Since(start) < 7*lease/2; time.Sleep(lease / 8) {
		last := renewed
		renewed = time.Now()
		p = exchange(t, b, window.Claim{Lease: lease, Held: places, HeldMax: places})
		expect(t, p.Used == places && (!p.Forgotten || time.Since(last) > lease), "%+v", p) // the test may stand still
		left := time.Duration(number("PTTL", hash)) * time.Millisecond
		end := lease - time.Since(renewed)
		expect(t, left > end, "the hash expires in %v, though its places end in %v", left, end)
	}
	bytes := number("MEMORY", "USAGE", hash)
	expect(t, bytes < 1000, "%d places take %d bytes", places, bytes)
	p = exchange(t, b, window.Claim{Lease: lease})
	expect(t, p.Used == 0, "%+v", p)
	await(t, "the hash stays", func() bool { return s.Must(t, "EXISTS", hash) == "0" })
}

// As it takes long, a claim looks whether its data set is that of the server only if the server does not know all
// places that are held, or if it is strict: also one that only renews, so that the wait of a lease is over when places
// are wanted.
func TestPlacesThatAreNotKnownShowAnotherDataSet(t *testing.T) {
	const birth = 1_000_000
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	want := []window.Want{{N: 1, Max: 5}}
	for _, step := range []struct {
		held           uint64
		strict         bool
		wants          []window.Want
		looks, forgets bool
	}{
		{held: 0, wants: want},
		{held: 1, wants: want}, // this is known
		{held: 3, wants: want, looks: true, forgets: true},
		{held: 4},
		{held: 4, strict: true, looks: true},
		{held: 0, strict: true},
	} {
		s.Must(t, "SET", "throttr:{b}:born1", fmt.Sprint("0 ", birth)) // by another server
		p := exchange(t, b, window.Claim{
			Lease: time.Minute, HeldMax: 5, Held: step.held, Strict: step.strict, Wants: step.wants,
		})
		looked := p.DataSet != birth
		expect(t, looked == step.looks && p.Forgotten == step.forgets, "%+v: %+v", step, p)
		expect(t, (p.Grace > 0) == (step.strict && looked) && len(p.Tokens) == len(step.wants), "%+v: %+v", step, p)
	}
}
