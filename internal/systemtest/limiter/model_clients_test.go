package limiter_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
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

var (
	modelOperations = flag.Int("model.operations", 6000, "how `many` operations the model test makes, for each value size")
	modelSeed       = flag.Uint64("model.seed", 0, "the `seed` of the only run of the model test; 0: as many as it takes, with seeds of their own")
)

const (
	modelRun           = 1200 // operations
	modelClients       = 4
	modelCallers       = 3 // per client
	modelMostIncrement = 3
	modelSkew          = 80 * time.Millisecond
	modelPatience      = 20 * time.Millisecond // with a silent server
	modelSlowest       = modelPatience * 4 / 3 // an answer, or the loss of it
	// modelResetKey is the only one whose windows are Set and Reset.
	modelResetKey = "c"
)

var modelScales = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// TestManyClientsDoWhatTheModelAllows has clients whose clocks differ do random operations
// on a few keys of a server that fails in random ways, and holds what they were told
// against what the server has done: each hit has its own place in the count of the window,
// or was denied for a window that was full; windows do not overlap, and end when they are
// over, or by a Set or Reset. An operation that was sent and has no answer counts once or
// not at all.
func TestManyClientsDoWhatTheModelAllows(t *testing.T) {
	t.Run("uint8", testManyClients[uint8])
	t.Run("uint16", testManyClients[uint16])
	t.Run("uint32", testManyClients[uint32])
	t.Run("uint64", testManyClients[uint64])
}

func testManyClients[T codec.Value](t *testing.T) {
	first, runs := *modelSeed, 1
	if first == 0 {
		first, runs = rand.Uint64(), (*modelOperations+modelRun-1)/modelRun
	}
	answered, seed := 0, first
	defer func() {
		if t.Failed() {
			t.Logf("go test -run '%s$' -model.seed=%d .", t.Name(), seed)
		}
	}()
	for i := range runs {
		seed = first + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			m := &modelTrial[T]{T: t, seed: seed}
			m.run()
			answered += m.answered
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d operations were answered, with seeds %d to %d", answered, runs*modelRun, first, seed)
}

// modelTrial is one run.
type modelTrial[T codec.Value] struct {
	*testing.T
	seed    uint64
	srv     *mockserver.Server
	history history[T]
	latency func() // removes the latency of answers

	mu       sync.Mutex
	away     bool // nobody can connect
	deeds    map[modelKey][]deed
	answered int
}

func (m *modelTrial[T]) rand(stream int) *rand.Rand {
	return rand.New(rand.NewPCG(m.seed, uint64(stream)))
}

func (m *modelTrial[T]) run() {
	r := m.rand(0)
	m.deeds, m.history.past = map[modelKey][]deed{}, map[modelKey]*past{}
	m.srv = testkit.InMemory(m, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(m.history.observe),
		mockserver.WithHazard(mockserver.LateExpiry, r.IntN(2) == 0))
	latency := time.Duration(1 + r.IntN(1_000_000))
	m.latency = m.srv.Inject(mockserver.Fault{Delay: latency})
	var callers sync.WaitGroup
	done := make(chan struct{})
	for c := range modelClients {
		limiter := m.client(c)
		for i := range modelCallers {
			callers.Go(func() { m.calls(m.rand(100+10*c+i), limiter) })
		}
	}
	var faults sync.WaitGroup
	faults.Go(func() { m.fail(m.rand(1), latency, done) })
	callers.Wait()
	close(done)
	faults.Wait()
	m.quiet()
	for k, deeds := range m.deeds {
		p := m.history.past[k]
		if p == nil {
			p = &past{}
		}
		recheck := min(max(k.scale/10, 10*time.Millisecond), time.Second)
		if wrong := p.check(deeds, recheck); len(wrong) > 0 {
			m.Errorf("key %s, scale %v:\n%s\n%s", k.key, k.scale, strings.Join(wrong, "\n"), p.tell(deeds))
		}
	}
}

// client returns a limiter with a client and a clock of its own.
func (m *modelTrial[T]) client(i int) *throttr.RateLimit {
	r := m.rand(10 + i)
	skew := time.Duration(r.Int64N(int64(modelSkew)))
	var mu sync.Mutex
	client := testkit.Connect[T](m, m.srv, testkit.ParkedIfSmall[T](throttr.Config{
		MaxConns: 1 + r.IntN(2), StallTimeout: modelPatience, ConnectTimeout: modelPatience,
		RetryPause: 4, MaxRetryPause: 4, // so short that it does not vary: dialing takes time itself
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			mu.Lock()
			wait := time.Duration(1 + r.IntN(5_000_000))
			mu.Unlock()
			time.Sleep(wait)
			m.mu.Lock()
			away := m.away
			m.mu.Unlock()
			if away {
				return nil, mockserver.ErrRefused
			}
			return m.srv.Dial(ctx)
		},
	}))
	return throttr.NewRateLimit(client.Backend(throttr.WithClock(func() time.Time { return time.Now().Add(skew) })))
}

// calls makes the operations of one caller.
func (m *modelTrial[T]) calls(r *rand.Rand, limiter *throttr.RateLimit) {
	for range modelRun / modelClients / modelCallers {
		time.Sleep(time.Duration(1 + r.IntN(30_000_000)))
		d := m.do(r, limiter)
		m.mu.Lock()
		m.deeds[d.key] = append(m.deeds[d.key], d)
		if d.err == nil {
			m.answered++
		}
		m.mu.Unlock()
	}
}

// do does one operation.
func (m *modelTrial[T]) do(r *rand.Rand, limiter *throttr.RateLimit) deed {
	d := deed{
		op: "hit", key: modelKey{string('a' + rune(r.IntN(3))), modelScales[r.IntN(len(modelScales))]},
		n: 1 + r.Uint64N(modelMostIncrement), limit: []uint64{5, 10, 20, 40}[r.IntN(4)], from: time.Now(),
	}
	ctx, cancel := context.WithTimeout(m.Context(), time.Duration(1+r.IntN(1_000_000_000)))
	defer cancel()
	key, scale := d.key.key, d.key.scale
	switch op := r.IntN(40); {
	case op < 20:
		d.n = 1
		fallthrough
	case op < 30:
		var res throttr.Result
		res, d.err = limiter.HitN(ctx, key, scale, d.limit, d.n)
		d.count, d.allowed = res.Count, res.Allowed
	case op < 34:
		d.op = "inc"
		d.count, d.err = limiter.Inc(ctx, key, scale, d.n)
	case op < 38:
		d.op = "get"
		d.count, d.err = limiter.Get(ctx, key, scale)
	case key != modelResetKey:
		d.op = "get"
		d.count, d.err = limiter.Get(ctx, key, scale)
	case op < 39:
		d.op, d.n = "set", []uint64{0, 10, 30}[r.IntN(3)]
		_, d.err = limiter.Set(ctx, key, scale, d.n)
	default:
		d.op = "reset"
		d.err = limiter.Reset(ctx, key, scale)
	}
	d.to, d.safe = time.Now(), d.err != nil && throttr.SafeToRetry(d.err)
	if d.err != nil {
		testkit.ErrorClass(m, d.err)
		d.to = d.to.Add(time.Hour)
	}
	return d
}

// fail lets things go wrong until all callers are done.
func (m *modelTrial[T]) fail(r *rand.Rand, latency time.Duration, done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(1 + r.IntN(400_000_000))):
		}
		lasts := time.Duration(1 + r.IntN(400_000_000))
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
			m.reach(false)
			time.Sleep(lasts)
			m.reach(true)
		case 5:
			require.NoError(m, m.srv.Restart(true))
		case 6:
			if r.IntN(3) == 0 {
				require.NoError(m, m.srv.Restart(false))
				m.history.lose()
			}
		case 7:
			for range 50 {
				m.srv.Publish("*", []byte("!"))
			}
		case 8:
			m.srv.Send([]byte{0xde, 0xad})
		case 9:
			m.slow(1 + time.Duration(r.Int64N(int64(modelPatience*3/4))))
			time.Sleep(lasts)
			m.slow(latency)
		}
	}
}

// slow sets the latency.
func (m *modelTrial[T]) slow(d time.Duration) {
	m.latency()
	m.latency = m.srv.Inject(mockserver.Fault{Delay: d})
}

// reach lets clients connect, or nobody, and ends the connections there are.
func (m *modelTrial[T]) reach(on bool) {
	m.mu.Lock()
	m.away = !on
	m.mu.Unlock()
	if !on {
		m.srv.Disconnect()
	}
}

// quiet requires that nothing is left long after.
func (m *modelTrial[T]) quiet() {
	time.Sleep(2 * time.Minute)
	for _, name := range testkit.Keys(m.srv) { // a probe that was cut can leave one of another name
		require.False(m, strings.HasPrefix(name, "rl:"), "%s was not removed", name)
	}
	_, err := m.client(modelClients).Hit(m.Context(), "after", time.Second, 1)
	require.NoError(m, err)
}
