package faults_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

const (
	shiftCallers = 64
	shiftCalls   = 50 // of each caller
	shiftKeys    = 64 // that are hit
)

// shifted is a server that loses or duplicates one response while many callers share a connection.
// Each later response then goes to the wrong request.
type shifted struct {
	*testing.T
	executed executions
	client   *throttr.Client[uint16]
	limiter  *throttr.RateLimit
	returned counts
}

// shiftedCall makes the n-th call and reports whether it returned a correct response.
type shiftedCall func(s *shifted, r *rand.Rand, n int) (correct bool, err error)

func (s *shifted) hit(r *rand.Rand, _ int) (bool, error) {
	key := fmt.Sprint("k", r.IntN(shiftKeys))
	res, err := s.limiter.Hit(s.Context(), key, time.Minute, 1000)
	return err == nil && s.returned.correct(key, res), err
}

// request makes a request of any kind. UPDATEs alone would look alike, as all responses are statuses.
func (s *shifted) request(r *rand.Rand, n int) (bool, error) {
	key := fmt.Sprint(n)
	switch r.IntN(4) {
	case 0:
		ok, err := s.client.Update(s.Context(), key, codec.Quota, codec.Increase, 1)
		return s.executed.match(codec.OpUpdate, key, ok, 0), err
	case 1:
		c, ok, err := s.client.Query(s.Context(), key)
		return s.executed.match(codec.OpQuery, key, ok, c.Quota), err
	case 2:
		ok, err := s.client.Insert(s.Context(), key, 1, testkit.Minute)
		return s.executed.match(codec.OpInsert, key, ok, 0), err
	default:
		ok, err := s.client.Purge(s.Context(), key)
		return s.executed.match(codec.OpPurge, key, ok, 0), err
	}
}

// A client makes another connection soon after a response was lost or duplicated. Until then, requests can
// get the response to another one. No hit is decided by one.
func TestShiftedResponsesAreDetected(t *testing.T) {
	for name, w := range map[string]struct {
		call     shiftedCall
		fault    mockserver.Fault
		maxWrong int
	}{
		"hits, lost":                     {(*shifted).hit, mockserver.Fault{Op: codec.OpUpdate, Drop: true}, 0},
		"hits, duplicated":               {(*shifted).hit, mockserver.Fault{Op: codec.OpUpdate, Duplicate: true}, 0},
		"requests, an UPDATE lost":       {(*shifted).request, mockserver.Fault{Op: codec.OpUpdate, Drop: true}, 2 * shiftCallers},
		"requests, an UPDATE duplicated": {(*shifted).request, mockserver.Fault{Op: codec.OpUpdate, Duplicate: true}, 2 * shiftCallers},
		"requests, a QUERY lost":         {(*shifted).request, mockserver.Fault{Op: codec.OpQuery, Drop: true}, 2 * shiftCallers},
		"requests, a QUERY duplicated":   {(*shifted).request, mockserver.Fault{Op: codec.OpQuery, Duplicate: true}, 2 * shiftCallers},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wrong := shift(t, seed, w.fault, w.call)
					require.LessOrEqual(t, wrong, w.maxWrong, "wrong responses")
				})
			})
		}
	}
}

// shift has all callers call while f happens once. It returns how many responses were wrong. Before f, none may be.
func shift(t *testing.T, seed uint64, f mockserver.Fault, call shiftedCall) int {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &shifted{T: t}
	srv := testkit.InMemory(t, mockserver.WithObserver(s.executed.observe))
	s.returned.executed = &s.executed
	for n := range shiftCallers * shiftCalls {
		if r.IntN(2) == 0 {
			srv.Set(fmt.Sprint(n), uint64(r.IntN(1000)), time.Minute)
		}
	}
	s.client = testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1}))
	s.limiter = testkit.NewRateLimit(s.client.Backend())
	time.Sleep(time.Second) // for the sweeper, which has a connection of its own
	latency := mockserver.Fault{Delay: time.Duration(500+r.IntN(1000)) * time.Microsecond}
	remove := srv.Inject(latency)

	var wrong atomic.Int64
	var began atomic.Bool
	var callers sync.WaitGroup
	for c := range shiftCallers {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c+1)))
			for i := range shiftCalls {
				correct, err := call(s, r, c*shiftCalls+i)
				if err == nil && !correct {
					wrong.Add(1)
				}
				if !correct && !began.Load() {
					t.Errorf("before the shift: %v", err)
				}
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
			}
		})
	}
	time.Sleep(time.Duration(5+r.IntN(10))*time.Millisecond + 1)
	began.Store(true)
	remove()
	f.Times, f.Delay = 1, latency.Delay
	srv.Inject(f) // ahead of the latency, because the first fault that matches applies
	srv.Inject(latency)
	callers.Wait()
	require.EqualValues(t, 1, testkit.ServerStats(s.client).Failures, "the shift is detected")
	return int(wrong.Load())
}

// A record whose TTL is longer than that of any window of that scale must be the response to another
// request. No hit is decided by it, and the connection ends. The unit tells nothing (H19).
func TestImpossibleTTLEndsTheConnection(t *testing.T) {
	const scale = time.Minute
	bands, _ := slot.BandsFor(scale, math.MaxUint16)
	require.Equal(t, time.Second, bands.Unit)
	longest := uint16(bands.Top)
	for _, ttl := range []codec.TTL[uint16]{
		{Amount: longest + 1, Unit: codec.Seconds},
		{Amount: longest + 1, Unit: 80},
	} {
		for name, hits := range map[string]int{"lookup": 0, "known window": 1} { // hits before
			t.Run(fmt.Sprintf("%v/%s", ttl, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testkit.InMemory(t)
					client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxRetries: -1}))
					limiter := testkit.NewRateLimit(client.Backend())
					testkit.Hits(t, limiter, 1, "another", scale, 5)
					time.Sleep(time.Second) // for the sweeper, which also makes QUERYs
					require.Equal(t, hits, testkit.Hits(t, limiter, hits, "k", scale, 5))
					other := testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: 3, TTL: ttl})
					srv.Inject(mockserver.Fault{Op: codec.OpQuery, Times: 1, Replace: other})
					res, err := limiter.Hit(t.Context(), "k", scale, 5)
					if hits == 0 { // a lookup changes nothing, so it is repeated on another connection
						require.NoError(t, err)
						require.True(t, res.Allowed)
					} else {
						require.ErrorIs(t, err, throttr.ErrProtocol)
						require.Zero(t, res)
					}
					synctest.Wait() // the pool learns of the end after the call
					require.EqualValues(t, 1, testkit.ServerStats(client).Failures)
					require.Positive(t, testkit.Hits(t, limiter, 1, "k", scale, 5), "on another connection")
				})
			})
		}
	}
	t.Run("longest possible", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			limiter := testkit.Limiter[uint16](t, srv)
			testkit.Hits(t, limiter, 1, "another", scale, 5)
			time.Sleep(time.Second) // for the sweeper, which also makes QUERYs
			ttl := codec.TTL[uint16]{Amount: longest, Unit: codec.Seconds}
			response := testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: math.MaxUint16 - 3, TTL: ttl})
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Times: 1, Replace: response})
			n, err := limiter.Get(t.Context(), "k", scale)
			require.NoError(t, err)
			require.EqualValues(t, 3, n)
		})
	})
}
