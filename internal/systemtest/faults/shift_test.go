package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math"
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
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

var faultSeeds = flag.Int("fault.seeds", 3, "how `many` times to measure each shift of responses")

const (
	shiftCallers = 64
	shiftCalls   = 50 // of each caller
	shiftKeys    = 64 // that are hit
)

// shiftScenario is a server that loses or duplicates one response while many callers share a
// connection. Each later response then goes to the wrong request.
type shiftScenario struct {
	*testing.T
	srv      *mockserver.Server
	executed executions
	client   *throttr.Client[uint16]
	limiter  *throttr.RateLimit
	returned counts

	mu       sync.Mutex // guards what follows
	shifted  time.Time  // when the response was lost or duplicated
	detected time.Time  // when the client closed the connection; zero if a caller had finished by then
	finished bool       // a caller has made all its calls
	dials    int
	wrong    int // calls that returned a wrong response
}

// shiftedCall makes the n-th call of a workload and reports whether it returned a correct response.
type shiftedCall func(s *shiftScenario, r *rand.Rand, n int) (correct bool, err error)

// shiftWorkload is a kind of call for a shiftScenario.
type shiftWorkload struct {
	name         string
	op           codec.Op // whose response is lost or duplicated
	call         shiftedCall
	maxWrong     int  // responses; 0 for hits
	limited      bool // the calls are hits, so that the client has a backend
	undetectable bool // all responses are statuses, and look alike
}

var shiftWorkloads = []shiftWorkload{
	{name: "hits", op: codec.OpUpdate, call: (*shiftScenario).hit, limited: true},
	{name: "UPDATEs", op: codec.OpUpdate, call: (*shiftScenario).update, undetectable: true},
	{
		name: "INSERTs, QUERYs, UPDATEs, PURGEs; the response to an UPDATE", op: codec.OpUpdate, call: (*shiftScenario).any,
		maxWrong: 2 * shiftCallers,
	},
	{
		name: "INSERTs, QUERYs, UPDATEs, PURGEs; the response to a QUERY", op: codec.OpQuery, call: (*shiftScenario).any,
		maxWrong: 2 * shiftCallers,
	},
}

func (s *shiftScenario) hit(r *rand.Rand, _ int) (bool, error) {
	key := fmt.Sprint("k", r.IntN(shiftKeys))
	res, err := s.limiter.Hit(s.Context(), key, time.Minute, 1000)
	return err == nil && s.returned.correct(key, res), err
}

func (s *shiftScenario) update(_ *rand.Rand, n int) (bool, error) {
	key := fmt.Sprint(n)
	ok, err := s.client.Update(s.Context(), key, codec.Quota, codec.Increase, 1)
	return s.executed.match(codec.OpUpdate, key, ok, 0), err
}

func (s *shiftScenario) any(r *rand.Rand, n int) (bool, error) {
	key := fmt.Sprint(n)
	switch r.IntN(4) {
	case 0:
		return s.update(r, n)
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

// dial makes a connection. The first one is that of the calls; later ones may be for a sweep.
func (s *shiftScenario) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	nc, err := s.srv.Dial(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dials++; s.dials > 1 || err != nil {
		return nc, err
	}
	return shiftedConn{nc, s}, nil
}

// shiftedConn records when the client closes it.
type shiftedConn struct {
	net.Conn
	s *shiftScenario
}

// Close implements [net.Conn].
func (c shiftedConn) Close() error {
	c.s.mu.Lock()
	if c.s.detected.IsZero() && !c.s.finished {
		c.s.detected = time.Now()
	}
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// run makes all calls of w, and injects f once while they are in progress. A client that has a
// backend sometimes makes QUERYs of its own, which would detect any shift.
func (s *shiftScenario) run(seed uint64, f mockserver.Fault, w shiftWorkload) {
	r := rand.New(rand.NewPCG(seed, 0))
	s.srv = testkit.InMemory(s, mockserver.WithObserver(s.executed.observe))
	s.returned.executed = &s.executed
	for n := range shiftCallers * shiftCalls {
		if r.IntN(2) == 0 {
			s.srv.Set(fmt.Sprint(n), uint64(r.IntN(1000)), time.Minute)
		}
	}
	s.client = testkit.Connect[uint16](s, s.srv, throttr.Config{Dial: s.dial, MaxConns: 1})
	if w.limited {
		s.limiter = testkit.NewRateLimit(s.client.Backend())
	}
	delay := mockserver.Fault{Delay: time.Duration(500+r.IntN(1000)) * time.Microsecond}
	remove := s.srv.Inject(delay)
	var callers sync.WaitGroup
	for c := range shiftCallers {
		callers.Go(func() { s.makeCalls(rand.New(rand.NewPCG(seed, uint64(c+1))), c*shiftCalls, w.call) })
	}
	time.Sleep(time.Duration(5+r.IntN(10))*time.Millisecond + 1)
	s.mu.Lock()
	s.shifted = time.Now()
	s.mu.Unlock()
	remove()
	f.Times, f.Delay = 1, delay.Delay
	s.srv.Inject(f) // ahead of the delay, because the first fault that matches applies
	s.srv.Inject(delay)
	callers.Wait()
}

// makeCalls makes the calls of one caller. Before the shift, all of them must succeed.
func (s *shiftScenario) makeCalls(r *rand.Rand, first int, call shiftedCall) {
	for i := range shiftCalls {
		correct, err := call(s, r, first+i)
		s.mu.Lock()
		before := s.shifted.IsZero()
		if err == nil && !correct {
			s.wrong++
		}
		s.finished = s.finished || i == shiftCalls-1
		s.mu.Unlock()
		if before && !correct {
			s.Errorf("call %d, before the shift: correct is %v, error %v", first+i, correct, err)
			return
		}
		time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
	}
}

// TestShiftedResponsesAreDetected measures how many calls return wrong responses after one response
// is lost or duplicated, until the client detects it and makes another connection.
func TestShiftedResponsesAreDetected(t *testing.T) {
	var table strings.Builder
	rows := 0
	table.WriteString("\n| calls | one response is | wrong, median | wrong, most | detected after, median | at most |\n|---|---|---|---|---|---|\n")
	for _, w := range shiftWorkloads {
		for _, f := range []struct {
			name  string
			fault mockserver.Fault
		}{{"lost", mockserver.Fault{Op: w.op, Drop: true}}, {"duplicated", mockserver.Fault{Op: w.op, Duplicate: true}}} {
			t.Run(w.name+"/"+f.name, func(t *testing.T) {
				fmt.Fprintf(&table, "| %s | %s | %s |\n", w.name, f.name, measureShift(t, w, f.fault))
				rows++
			})
		}
	}
	if rows == 2*len(shiftWorkloads) { // no row has failed, and -run has selected all
		writeTable(t, "shifts", table.String())
	}
}

// measureShift returns the last four columns of a row of the table.
func measureShift(t *testing.T, w shiftWorkload, f mockserver.Fault) string {
	var wrong []int
	var delays []time.Duration // until the shift was detected
	for seed := range uint64(*faultSeeds) {
		var s *shiftScenario
		for attempt := 0; attempt < 3 && (s == nil || s.detected.IsZero() && !w.undetectable); attempt++ {
			synctest.Test(t, func(t *testing.T) {
				s = &shiftScenario{T: t}
				s.run(seed, f, w)
			})
			// What is not detected must not concern the calls: it is on the connection of a sweep.
			require.True(t, w.undetectable || !s.detected.IsZero() || s.wrong == 0, "seed %d: not detected", seed)
		}
		require.False(t, t.Failed(), "seed %d", seed)
		require.Equal(t, w.undetectable, s.detected.IsZero(), "seed %d: detected", seed)
		wrong = append(wrong, s.wrong)
		delays = append(delays, s.detected.Sub(s.shifted).Round(10*time.Microsecond))
	}
	slices.Sort(wrong)
	slices.Sort(delays)
	last := len(wrong) - 1
	columns := fmt.Sprintf("%d | %d | ", wrong[last/2], wrong[last])
	if w.undetectable {
		return columns + "never | never"
	}
	require.LessOrEqual(t, wrong[last], w.maxWrong, "wrong responses")
	return columns + fmt.Sprintf("%v | %v", delays[last/2], delays[last])
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
					client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{MaxConns: 1})))
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
