package limiter_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

var (
	modelOperations = flag.Int("model.operations", 2400, "how `many` operations the model test makes, for each value size")
	modelSeed       = flag.Uint64("model.seed", 0, "the `seed` of the only run of the model test; 0: all runs, with random seeds")
)

const (
	runOperations = 1200
	runClients    = 4
	runCallers    = 3 // of each client
	maxIncrement  = 3
	stallTimeout  = 20 * time.Millisecond
	maxRoundTrip  = stallTimeout * 4 / 3 // until a response comes, or the connection is lost
	// replacedKey is the only key that is Set and Reset.
	replacedKey = "c"
)

// TestManyClientsDoWhatTheModelAllows makes random operations on a few keys. The clocks of the
// clients differ, and the server and the connections fail at random. It then compares the results
// with what the server has executed:
//
//   - Each allowed hit has a count of its own, which the server assigned during the call.
//   - A hit is denied only if the window has reached the count.
//   - Windows do not overlap. A window ends when it is over, or by a Set or Reset.
//   - An operation that fails is executed once or not at all.
func TestManyClientsDoWhatTheModelAllows(t *testing.T) {
	t.Run("uint8", testManyClients[uint8])
	t.Run("uint16", testManyClients[uint16])
	t.Run("uint32", testManyClients[uint32])
	t.Run("uint64", testManyClients[uint64])
}

func testManyClients[T codec.Value](t *testing.T) {
	first, runs := *modelSeed, 1
	if first == 0 {
		first, runs = rand.Uint64(), (*modelOperations+runOperations-1)/runOperations
	}
	succeeded, seed := int64(0), first
	defer func() {
		if t.Failed() {
			t.Logf("go test -run '%s$' -model.seed=%d ./internal/systemtest/limiter", t.Name(), seed)
		}
	}()
	for i := range runs {
		seed = first + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			m := &manyClients[T]{T: t, seed: seed}
			m.run()
			succeeded += m.succeeded.Load()
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d operations succeeded, with seeds %d to %d", succeeded, runs*runOperations, first, seed)
	require.Greater(t, succeeded, int64(runs*runOperations/2), "otherwise nothing is tested")
}

// manyClients is one run of TestManyClientsDoWhatTheModelAllows.
type manyClients[T codec.Value] struct {
	*testing.T
	seed    uint64
	srv     *mockserver.Server
	history history[T]

	operations operations
	succeeded  atomic.Int64
}

// rand returns a source of random numbers that depends on the seed and on stream.
func (m *manyClients[T]) rand(stream int) *rand.Rand {
	return rand.New(rand.NewPCG(m.seed, uint64(stream)))
}

func (m *manyClients[T]) run() {
	r := m.rand(0)
	m.srv = testkit.InMemory(m, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(m.history.observe),
		mockserver.WithHazard(mockserver.LateExpiry, r.IntN(2) == 0))
	latency := time.Duration(1 + r.IntN(1_000_000))
	removeLatency := m.srv.Inject(mockserver.Fault{Delay: latency})
	var callers sync.WaitGroup
	for c := range runClients {
		limiter := m.client(c)
		for i := range runCallers {
			callers.Go(func() { m.makeOperations(m.rand(100+10*c+i), limiter) })
		}
	}
	done := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() { m.causeFaults(m.rand(1), latency, removeLatency, done) })
	callers.Wait()
	close(done)
	faults.Wait()
	m.requireNoRecords()
	for k, operations := range m.operations.all {
		h := m.history.of(k)
		if wrong := h.check(operations); len(wrong) > 0 {
			m.Errorf("key %s, scale %v:\n%s\n%s", k.key, k.scale, strings.Join(wrong, "\n"), h.format(operations))
		}
	}
}

// client returns a limiter with a client of its own.
func (m *manyClients[T]) client(i int) *throttr.RateLimit {
	r := m.rand(10 + i)
	var mu sync.Mutex // guards r
	client := testkit.Connect[T](m, m.srv, throttr.Config{
		MaxConns: 1 + r.IntN(2), StallTimeout: stallTimeout, ConnectTimeout: stallTimeout,
		MinBackoff: 4, MaxBackoff: 4, // too short for jitter, which has no seed; Dial has a pause of its own
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			mu.Lock()
			pause := time.Duration(1 + r.IntN(5_000_000))
			mu.Unlock()
			time.Sleep(pause)
			return m.srv.Dial(ctx)
		},
	})
	return testkit.NewRateLimit(client.Backend())
}

// makeOperations makes the operations of one caller.
func (m *manyClients[T]) makeOperations(r *rand.Rand, limiter *throttr.RateLimit) {
	scales := []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}
	if codec.Size[T]() == 1 {
		scales = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second}
	}
	for range runOperations / runClients / runCallers {
		time.Sleep(time.Duration(1 + r.IntN(30_000_000)))
		op := randomOperation(r, scales)
		op.do(m.Context(), limiter, time.Duration(1+r.IntN(1_000_000_000)))
		// Windows of a short scale are refused while a server settles.
		if op.err != nil && !errors.Is(op.err, throttr.ErrUnavailable) && !errors.Is(op.err, context.DeadlineExceeded) &&
			!errors.Is(op.err, fixedwindow.ErrTooLate) {
			m.Errorf("unexpected error: %v", op.err)
		}
		m.operations.add(op)
		if op.err == nil {
			m.succeeded.Add(1)
		}
	}
}

// causeFaults causes random faults until done is closed.
func (m *manyClients[T]) causeFaults(r *rand.Rand, latency time.Duration, removeLatency func(), done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(1 + r.IntN(400_000_000))):
		}
		duration := time.Duration(1 + r.IntN(400_000_000))
		switch r.IntN(10) {
		case 0:
			m.srv.Disconnect()
		case 1:
			m.srv.HalfOpen()
		case 2:
			m.srv.Split(r.IntN(4))
		case 3:
			m.srv.Cut(mockserver.Cut{Direction: mockserver.Direction(r.IntN(2)), After: 5 + r.IntN(1000), Times: 1 + r.IntN(2)})
			m.srv.Disconnect()
		case 4:
			m.srv.Refuse(true)
			m.srv.Disconnect()
			time.Sleep(duration)
			m.srv.Refuse(false)
		case 5:
			require.NoError(m, m.srv.Restart(true))
		case 6:
			if r.IntN(3) == 0 {
				require.NoError(m, m.srv.Restart(false))
				m.history.removeAll()
			}
		case 7:
			for range 50 {
				m.srv.Publish("*", []byte("!"))
			}
		case 8:
			m.srv.Send([]byte{0xde, 0xad})
		case 9:
			removeLatency()
			slow := m.srv.Inject(mockserver.Fault{Delay: 1 + time.Duration(r.Int64N(int64(stallTimeout*3/4)))})
			time.Sleep(duration)
			slow()
			removeLatency = m.srv.Inject(mockserver.Fault{Delay: latency})
		}
	}
}

// requireNoRecords requires that all records of windows are removed, and that the server still
// works.
func (m *manyClients[T]) requireNoRecords() {
	time.Sleep(3 * time.Minute)
	for _, name := range testkit.Keys(m.srv) { // a probe that was cut can leave a record of another name
		_, ours := fixedwindow.ParseName([]byte(name))
		require.False(m, ours, "%s was not removed", name)
	}
	_, err := m.client(runClients).Hit(m.Context(), "after", time.Second, 1)
	require.NoError(m, err)
}

// operation is a call of a limiter, and its result.
type operation struct {
	kind     operationKind
	key      modelKey
	n, limit uint64

	// start and end are the times between which it is executed, if it is. A failed operation may
	// be executed after its call has returned.
	start, end time.Time
	count      uint64
	allowed    bool
	err        error
	notSent    bool // err says that it was not executed
}

type operationKind string

const (
	opHit   operationKind = "Hit"
	opInc   operationKind = "Inc"
	opSet   operationKind = "Set"
	opReset operationKind = "Reset"
)

// timeFormat is how operations and histories print times.
const timeFormat = "04:05.000000000"

// randomOperation returns an operation that was not done yet.
func randomOperation(r *rand.Rand, scales []time.Duration) operation {
	op := operation{
		key: modelKey{string('a' + rune(r.IntN(3))), scales[r.IntN(len(scales))]},
		n:   1 + r.Uint64N(maxIncrement), limit: []uint64{5, 10, 20, 40}[r.IntN(4)],
	}
	switch n := r.IntN(40); {
	case n < 20:
		op.kind, op.n = opHit, 1
	case n < 30:
		op.kind = opHit
	case n < 38 || op.key.key != replacedKey:
		op.kind = opInc
	case n < 39:
		op.kind, op.n = opSet, []uint64{0, 10, 30}[r.IntN(3)]
	default:
		op.kind = opReset
	}
	return op
}

// do does the operation.
func (op *operation) do(ctx context.Context, limiter *throttr.RateLimit, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	key, scale := op.key.key, op.key.scale
	op.start = time.Now()
	switch op.kind {
	case opHit:
		var res throttr.Result
		res, op.err = limiter.HitN(ctx, key, throttr.Limit{Max: op.limit, Scale: scale}, op.n)
		op.count, op.allowed = res.Count, res.Allowed
	case opInc:
		op.count, op.err = limiter.Inc(ctx, key, scale, op.n)
	case opSet:
		_, op.err = limiter.Set(ctx, key, scale, op.n)
	case opReset:
		op.err = limiter.Reset(ctx, key, scale)
	}
	op.end = time.Now()
	if op.err != nil {
		op.notSent = testkit.SafeToRetry(op.err)
		op.end = op.end.Add(time.Hour)
	}
}

// granted reports whether the operation has got places in a window.
func (op operation) granted() bool {
	return op.err == nil && (op.kind == opInc || op.kind == opHit && op.allowed)
}

// replaces reports whether the operation ends a window.
func (op operation) replaces() bool { return op.kind == opSet || op.kind == opReset }

// includes reports whether t is between start and end.
func (op operation) includes(t time.Time) bool { return !t.Before(op.start) && !t.After(op.end) }

func (op operation) String() string {
	return fmt.Sprintf("%s %s/%v n=%d limit=%d from %v to %v: %d, allowed %v, %v", op.kind, op.key.key, op.key.scale, op.n, op.limit,
		op.start.Format(timeFormat), op.end.Format(timeFormat), op.count, op.allowed, op.err)
}

// operations are those of all callers, by key.
type operations struct {
	mu  sync.Mutex // guards all
	all map[modelKey][]operation
}

func (o *operations) add(op operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[modelKey][]operation{}
	}
	o.all[op.key] = append(o.all[op.key], op)
}

// modelKey identifies the windows of a key and scale.
type modelKey struct {
	key   string
	scale time.Duration
}

// flood is a load of many clients that hit a few keys as fast as they can.
type flood struct {
	scale, duration time.Duration
	lateExpiry      bool // H2
}

const (
	floodClients    = 8
	floodGoroutines = 16 // of each client
)

// floodLimits are the limits of the keys. One is the highest of the smallest counters, which must not wrap (H3).
var floodLimits = map[string]uint64{"a": 20, "b": 150, "c": 20, "d": 150, "e": math.MaxUint8}

func TestFloodNeverExceedsTheLimit(t *testing.T) {
	for _, lateExpiry := range []bool{false, true} {
		f := flood{time.Second, max(testkit.Fewer(5*time.Second), 3*time.Second), lateExpiry}
		run := func(size string, test func(*testing.T, flood)) {
			testkit.Bubble(t, fmt.Sprintf("%s/lateExpiry=%v", size, lateExpiry), func(t *testing.T) { test(t, f) })
		}
		run("uint8", testFlood[uint8])
		if !testkit.Thorough() && !lateExpiry {
			continue
		}
		f.scale, f.duration = 300*time.Millisecond, 2*time.Second
		run("uint16", testFlood[uint16])
		if !testkit.Thorough() {
			continue
		}
		run("uint32", testFlood[uint32])
		run("uint64", testFlood[uint64])
	}
}

// testFlood runs a flood. It requires that each granted hit has a place of its own in a window on
// the server, that windows do not overlap, that each window grants its limit, and that the next one opens
// without delay.
func testFlood[T codec.Value](t *testing.T, f flood) {
	const latency = time.Millisecond
	var log history[T]
	var granted operations
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(log.observe),
		mockserver.WithHazard(mockserver.LateExpiry, f.lateExpiry))
	srv.Inject(mockserver.Fault{Delay: latency})
	pause := 8 * time.Millisecond
	if race.Enabled {
		pause, f.duration = max(pause, f.scale/40), 3*f.scale
	}
	var callers sync.WaitGroup
	for range floodClients { // they open their first windows at the same time
		limiter := testkit.NewRateLimit(testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{})).Backend())
		for range floodGoroutines {
			callers.Go(func() {
				for end := time.Now().Add(f.duration); time.Now().Before(end); time.Sleep(pause/2 + rand.N(pause)) {
					for key, limit := range floodLimits {
						op := operation{kind: opHit, key: modelKey{key, f.scale}, n: 1, limit: limit}
						op.do(t.Context(), limiter, time.Minute)
						if op.err != nil {
							t.Error(op)
						}
						granted.add(op)
					}
				}
			})
		}
	}
	callers.Wait()

	for key, limit := range floodLimits {
		k := log.of(modelKey{key, f.scale})
		require.Empty(t, k.errors, key)
		taken, homeless := k.match(granted.all[modelKey{key, f.scale}])
		require.Empty(t, homeless, "key %s: hits that were granted without a place on the server", key)
		require.GreaterOrEqual(t, len(k.windows), int(f.duration/f.scale)-1, key)
		for i, w := range k.windows {
			require.LessOrEqual(t, taken[w], limit, "key %s, window %d", key, i)
			if i == 0 {
				continue
			}
			last := k.windows[i-1]
			require.GreaterOrEqual(t, w.start.Sub(last.start), f.scale, "key %s: windows %d and %d overlap", key, i-1, i)
			require.LessOrEqual(t, w.start.Sub(last.end), 2*pause+10*latency, "key %s: no window after window %d", key, i-1)
			require.Equal(t, limit, taken[last], "key %s, window %d", key, i-1)
		}
	}
	requireRemoved(t, srv, idle[T](t, f.scale))
	require.Zero(t, srv.Expired(), "records that expired on the server")
}

func TestServerBackendConforms(t *testing.T) {
	ofEachSize(t, testConformance[uint8], testConformance[uint16], testConformance[uint32], testConformance[uint64])
}

// ofEachSize runs a test for each value size, or for two unless tests are thorough: the smallest, in which counts are
// bounded by the server, and another one.
func ofEachSize(t *testing.T, uint8, uint16, uint32, uint64 func(*testing.T)) {
	t.Run("uint8", uint8)
	t.Run("uint16", uint16)
	if testkit.Thorough() {
		t.Run("uint32", uint32)
		t.Run("uint64", uint64)
	}
}

func testConformance[T codec.Value](t *testing.T) {
	backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
		_, client := testkit.Start[T](t, throttr.Config{})
		return subjectOf(client.Backend())
	})
}

// TestTwoClientsOfServersConform has a second client of the same two servers, which names them in another order.
// Neither remembers denials, so that each finds at once what the other one has left.
func TestTwoClientsOfServersConform(t *testing.T) {
	if !testkit.Thorough() {
		t.Run("uint8", testTwoClients[uint8])
		return
	}
	ofEachSize(t, testTwoClients[uint8], testTwoClients[uint16], testTwoClients[uint32], testTwoClients[uint64])
}

func testTwoClients[T codec.Value](t *testing.T) {
	backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
		cfg := testkit.Several(t, 2, mockserver.WithValueSize(codec.Size[T]())).Over(throttr.Config{})
		s := subjectOf(testkit.Client[T](t, cfg).Backend(throttr.WithDenialMemory(-1)))
		cfg.Servers = slices.Clone(cfg.Servers)
		slices.Reverse(cfg.Servers)
		s.Second = testkit.Client[T](t, cfg).Backend(throttr.WithDenialMemory(-1))
		return s
	})
}

// subjectOf returns a backend of a client in a bubble.
func subjectOf(b *throttr.ServerBackend) backendtest.Subject {
	return backendtest.Subject{
		Backend: b, Clock: backendtest.BubbleClock{}, SkipsDenied: true, MayLose: true,
		Without: map[string]string{
			"Exchange":   "a grant would take several exchanges, and there is no line",
			"ListPlaces": "there are none",
		},
	}
}
