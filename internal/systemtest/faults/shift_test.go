package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

var faultSeeds = flag.Int("fault.seeds", 3, "how `many` times each shift of answers is tried")

// In the trial of a shift, callers make calls as fast as their answers come, on one
// connection.
const (
	shiftCallers = 64
	shiftCalls   = 50 // each
	shiftHits    = 64 // keys that are hit
)

// shiftTrial is a server that loses or doubles one answer, once, and what comes of it.
type shiftTrial struct {
	*testing.T
	srv     *mockserver.Server
	truth   truth
	client  *throttr.Client[uint16]
	limiter *throttr.RateLimit
	places  places

	mu    sync.Mutex
	shift time.Time // when it happened
	found time.Time // when the client made another connection; zero if not while all were calling
	over  bool      // the first caller has made all its calls
	dials int
	wrong int
}

// shiftedCall makes the n-th call of a kind and reports whether its answer is right.
type shiftedCall func(x *shiftTrial, r *rand.Rand, n int) (right bool, err error)

var shiftedCalls = []struct {
	name  string
	op    codec.Op // whose answer is lost or doubled
	call  shiftedCall
	fence int  // Config.FenceEvery
	most  int  // wrong answers; 0: docs/reliability.md promises that there are none
	blind bool // nothing but statuses: the client can't notice
}{
	{name: "hits", op: codec.OpUpdate, call: (*shiftTrial).hit},
	{name: "UPDATEs", op: codec.OpUpdate, call: (*shiftTrial).update, blind: true},
	{name: "UPDATEs, `FenceEvery` 256", op: codec.OpUpdate, call: (*shiftTrial).update, fence: 256, most: 256 + 2*shiftCallers},
	{name: "UPDATEs, `FenceEvery` 32", op: codec.OpUpdate, call: (*shiftTrial).update, fence: 32, most: 32 + 2*shiftCallers},
	{name: "INSERTs, QUERYs, UPDATEs, PURGEs", op: codec.OpUpdate, call: (*shiftTrial).any, most: 2 * shiftCallers},
	{name: "the same, but a QUERY's", op: codec.OpQuery, call: (*shiftTrial).any, most: 2 * shiftCallers},
}

func (x *shiftTrial) hit(r *rand.Rand, _ int) (bool, error) {
	key := fmt.Sprint("k", r.IntN(shiftHits))
	res, err := x.limiter.Hit(x.Context(), key, time.Minute, 1000)
	return err == nil && x.places.right(key, res), err
}

func (x *shiftTrial) update(_ *rand.Rand, n int) (bool, error) {
	key := fmt.Sprint(n)
	ok, err := x.client.Update(x.Context(), key, codec.Quota, codec.Increase, 1)
	return x.truth.answered(codec.OpUpdate, key, ok, 0), err
}

func (x *shiftTrial) any(r *rand.Rand, n int) (bool, error) {
	key := fmt.Sprint(n)
	switch r.IntN(4) {
	case 0:
		return x.update(r, n)
	case 1:
		c, ok, err := x.client.Query(x.Context(), key)
		return x.truth.answered(codec.OpQuery, key, ok, c.Quota), err
	case 2:
		ok, err := x.client.Insert(x.Context(), key, 1, testkit.Minute)
		return x.truth.answered(codec.OpInsert, key, ok, 0), err
	default:
		ok, err := x.client.Purge(x.Context(), key)
		return x.truth.answered(codec.OpPurge, key, ok, 0), err
	}
}

// dial notes when the client makes another connection.
func (x *shiftTrial) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	x.mu.Lock()
	if x.dials++; x.dials == 2 && !x.over {
		x.found = time.Now()
	}
	x.mu.Unlock()
	return x.srv.Dial(ctx)
}

// run lets a shift happen under way.
func (x *shiftTrial) run(seed uint64, f mockserver.Fault, fence int, call shiftedCall) {
	r := rand.New(rand.NewPCG(seed, 0))
	x.srv = testkit.InMemory(x, mockserver.WithObserver(x.truth.observe))
	x.places.truth = &x.truth
	for n := range shiftCallers * shiftCalls {
		if r.IntN(2) == 0 {
			x.srv.Set(fmt.Sprint(n), uint64(r.IntN(1000)), time.Minute)
		}
	}
	x.client = testkit.Connect[uint16](x, x.srv, throttr.Config{Dial: x.dial, MaxConns: 1, FenceEvery: fence})
	x.limiter = throttr.NewRateLimit(x.client.Backend())
	latency := mockserver.Fault{Delay: time.Duration(500+r.IntN(1000)) * time.Microsecond}
	remove := x.srv.Inject(latency)
	var all sync.WaitGroup
	for c := range shiftCallers {
		all.Go(func() { x.calls(rand.New(rand.NewPCG(seed, uint64(c+1))), c*shiftCalls, call) })
	}
	time.Sleep(time.Duration(5+r.IntN(10))*time.Millisecond + 1)
	x.mu.Lock()
	x.shift = time.Now()
	x.mu.Unlock()
	remove()
	f.Times, f.Delay = 1, latency.Delay
	x.srv.Inject(f) // before the latency: the first happens
	x.srv.Inject(latency)
	all.Wait()
}

// calls makes those of one caller.
func (x *shiftTrial) calls(r *rand.Rand, first int, call shiftedCall) {
	for i := range shiftCalls {
		right, err := call(x, r, first+i)
		x.mu.Lock()
		early := x.shift.IsZero()
		if err == nil && !right {
			x.wrong++
		}
		x.over = x.over || i == shiftCalls-1
		x.mu.Unlock()
		if early && !right {
			x.Errorf("call %d, before anything has happened: right is %v, error %v", first+i, right, err)
			return
		}
		time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
	}
}

// TestFaultShifts measures how many wrong answers get out when one is lost, or comes
// twice, until the client notices and makes another connection.
func TestFaultShifts(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| calls | one answer is | wrong, median | at worst | noticed after, median | at worst |\n|---|---|---|---|---|---|\n")
	for _, c := range shiftedCalls {
		for _, f := range []struct {
			name  string
			fault mockserver.Fault
		}{{"lost", mockserver.Fault{Op: c.op, Drop: true}}, {"doubled", mockserver.Fault{Op: c.op, Duplicate: true}}} {
			var wrong []int
			var noticed []time.Duration
			t.Logf("%s, %s: seeds 0 to %d", c.name, f.name, *faultSeeds-1)
			for seed := range uint64(*faultSeeds) {
				synctest.Test(t, func(t *testing.T) {
					x := &shiftTrial{T: t}
					x.run(seed, f.fault, c.fence, c.call)
					require.False(t, t.Failed(), "seed %d", seed)
					require.Equal(t, c.blind, x.found.IsZero(), "%s, %s, seed %d: noticed", c.name, f.name, seed)
					wrong = append(wrong, x.wrong)
					noticed = append(noticed, x.found.Sub(x.shift).Round(10*time.Microsecond))
				})
			}
			slices.Sort(wrong)
			slices.Sort(noticed)
			last := len(wrong) - 1
			after := fmt.Sprintf("%v | %v", noticed[last/2], noticed[last])
			if c.blind {
				after = "never | never"
			}
			fmt.Fprintf(&table, "| %s | %s | %d | %d | %s |\n", c.name, f.name, wrong[last/2], wrong[last], after)
			if !c.blind {
				require.LessOrEqual(t, wrong[last], c.most, "wrong answers")
			}
		}
	}
	document(t, "shifts", table.String())
}

// TestATTLThatNoWindowHasEndsTheConnection has the server answer a QUERY, of each of those
// that hits make, with a record that the client itself would never have inserted: it is the
// answer to another request. No hit is decided by it.
func TestATTLThatNoWindowHasEndsTheConnection(t *testing.T) {
	const longest = 31_000 // ms: a scale of 1 s, and 30 s of margin
	for _, ttl := range []codec.TTL[uint16]{
		{Amount: 30_500, Unit: codec.Seconds},
		{Amount: 30_500, Unit: codec.Microseconds},
		{Amount: longest + 1, Unit: codec.Milliseconds},
	} {
		for _, c := range []struct {
			name  string
			hits  int // before
			skips int // QUERYs of the hit
		}{{"a look", 0, 0}, {"another bucket, on opening", 0, 5}, {"the record, on opening", 0, 9}, {"a known window", 1, 0}} {
			t.Run(fmt.Sprintf("%v/%s", ttl, c.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testkit.InMemory(t)
					client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{MaxConns: 1})))
					limiter := throttr.NewRateLimit(client.Backend())
					require.Equal(t, c.hits, testkit.Hits(t, limiter, c.hits, "k", time.Second, 5))
					other := testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: 3, TTL: ttl})
					srv.Inject(mockserver.Fault{Op: codec.OpQuery, Skip: c.skips, Times: 1, Replace: other})
					res, err := limiter.Hit(t.Context(), "k", time.Second, 5)
					require.ErrorIs(t, err, throttr.ErrProtocol)
					require.Zero(t, res)
					require.EqualValues(t, 1, testkit.ServerStats(client).Failures)
					require.Positive(t, testkit.Hits(t, limiter, 1, "k", time.Second, 5), "on another connection")
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // as long as it can be
		srv := testkit.InMemory(t)
		limiter := testkit.Limiter[uint16](t, srv)
		ttl := codec.TTL[uint16]{Amount: longest, Unit: codec.Milliseconds}
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Times: 1, Replace: testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: 3, TTL: ttl})})
		n, err := limiter.Get(t.Context(), "k", time.Second)
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
	})
}
