//go:build unix

package redisbackend_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
)

// takeOverBehind kills the primary of the key "k" when its replica has missed what is written while the function is
// called, and has the replica take over. It returns when the primary was killed.
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
	replica.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER") // without votes, which nodes may refuse for two minutes
	return killed
}

// Places are held while their slot moves to another node, and back. The new node grants nothing for a lease, and
// whoever holds a place keeps it.
func TestPlacesInFlightOfASlotThatMoves(t *testing.T) {
	c := testkit.StartCluster(t, 2, 2)
	limit := inflight.Limit{Max: 5, Lease: 3 * time.Second}
	h := newHolding(t, func() rueidis.Client { return onCluster(t, c) }, 3, limit, inflight.WithStrict())
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
		expect(t, first > limit.Lease*3/4, "a place is granted %v after the move", first)
	}
	most := h.end(t)
	t.Logf("%d places granted, %d lost; %d of %d held at most", len(h.tokens), h.lost, most, limit.Max)
	expect(t, most <= int(limit.Max), "%d of %d places are held", most, limit.Max)
	expect(t, h.lost == 0, "%d places are lost", h.lost)
}

// A process gets all places, and before the replica knows of them, it takes over. It is another birth: it grants
// nothing until the process has told it what it holds.
func TestPlacesInFlightSurviveAFailover(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	limit := inflight.Limit{Max: 10, Lease: 6 * time.Second}
	h := newHolding(t, func() rueidis.Client { return onCluster(t, c) }, 6, limit, inflight.WithStrict())
	killed := takeOverBehind(t, c, func() {
		h.hold(h.limiters[0], 1, limit.Max, 24*time.Hour)
		await(t, "no places are granted", func() bool { return h.limiters[0].Stats().InUse == limit.Max })
		for _, l := range h.limiters[1:] {
			h.hold(l, 4, 1, time.Second)
		}
	})
	time.Sleep(limit.Lease / 2)
	kept := h.limiters[0].Stats().InUse
	h.limiters[0].Close() // before the new primary may grant others, the process needs its places no more
	await(t, "no place is granted after the failover", func() bool { return h.firstAfter(killed.Add(limit.Lease/2)) >= 0 })
	first := h.firstAfter(killed.Add(time.Second / 2))
	most := h.end(t)
	t.Logf("%d places are kept; the next grant is %v later; %d of %d held at most", kept, first, most, limit.Max)
	expect(t, most <= int(limit.Max), "%d of %d places are held", most, limit.Max)
	expect(t, first > limit.Lease*3/4, "a place is granted %v after the failover", first)
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

// The first place of a slot, and with it the slot's birth, is lost in a failover. The new primary knows that it was
// a replica, and grants nothing for a lease.
func TestTheFirstPlaceOfASlotIsLostInAFailover(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	limit := inflight.Limit{Max: 1, Lease: 4 * time.Second}
	one, two := twoStrict(t, func() rueidis.Client { return onCluster(t, c) })
	time.Sleep(limit.Lease + 2*time.Second) // until the servers have been up for longer than a lease
	var h *inflight.Hold
	takeOverBehind(t, c, func() { h = acquired(t, one, "k", limit, 1) })
	neverTwo(t, h, two, limit)
}
