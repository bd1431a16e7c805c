package throttr_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// journal keeps log lines.
type journal struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.Write(p)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(j, nil)) }

// entries returns the lines.
func (j *journal) entries(t *testing.T) (all []map[string]any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.lines.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		all = append(all, entry)
	}
	return all
}

// A store is away for ten seconds at 2,000 hits a second: the first hits wait for it as long as they may,
// then none does, the fallback counts, and there is a line for the first decision without the store, and two for the
// outage.
func TestAnOutageCostsMilliseconds(t *testing.T) {
	for name, fault := range map[string]fault{
		"hangs": hangs, "down": isDown, "refuses": refuses, "slow": isSlow, "read-only": onlyReads,
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			store, log := newDistant(t), &journal{}
			store.be(near)
			var events []throttr.Event
			limiter := throttr.NewRateLimit(store, throttr.WithFallback(inProcess(t, memory.WithClock(time.Now))), throttr.WithLogger(log.logger()),
				throttr.WithObserver(func(_ context.Context, e throttr.Event) {
					if e.Kind == throttr.EventUnavailable || e.Kind == throttr.EventAvailable {
						events = append(events, e)
					}
				}))
			var calls sync.WaitGroup
			var degraded, denied, goroutines atomic.Int64
			one, other := decisions["hit"], decisions["take all"]
			hits := func(d, atMost time.Duration) {
				for begun := time.Now(); time.Since(begun) < d; time.Sleep(500 * time.Microsecond) {
					goroutines.Store(max(goroutines.Load(), int64(runtime.NumGoroutine())))
					one, other = other, one
					decide := one
					calls.Go(func() {
						called := time.Now()
						res, err := decide(t.Context(), limiter, throttr.Limit{Max: 10_000, Scale: time.Hour}, 1)
						if err != nil || time.Since(called) > atMost {
							t.Errorf("%v after %v", err, time.Since(called))
						}
						if res.Degraded {
							degraded.Add(1)
						}
						if !res.Allowed {
							denied.Add(1)
						}
					})
				}
			}
			hits(time.Second, time.Millisecond)
			require.Zero(t, degraded.Load())
			store.be(fault)
			hits(260*time.Millisecond, 250*time.Millisecond)
			before := goroutines.Swap(0)
			// The call that tries what the store can write may take as long as all others before.
			hits(9740*time.Millisecond, map[bool]time.Duration{true: 250 * time.Millisecond, false: 0}[name == "slow"])
			require.LessOrEqual(t, goroutines.Load(), before+100, "nothing is left behind")
			asked := store.asked.Load()
			store.be(near)
			hits(650*time.Millisecond, time.Millisecond) // a trial that hangs for 250 ms, and a pause
			counted := degraded.Load()
			hits(time.Second, time.Millisecond)
			calls.Wait()
			require.Equal(t, counted, degraded.Load(), "the store counts again")
			require.Greater(t, counted, int64(20_000))
			require.Less(t, asked, int64(2000+520+60), "the store is spared")

			lines := log.entries(t)
			require.Len(t, lines, 3)
			require.EqualValues(t, 1, lines[0]["degraded"])
			require.Equal(t, "throttr: the store is away", lines[1]["msg"])
			require.Equal(t, "throttr: the store is back", lines[2]["msg"])
			// A call that was refused while another closed the breaker may be counted after the line.
			require.InDelta(t, degraded.Load()-1, lines[2]["degraded"], 4)
			require.InDelta(t, denied.Load(), lines[2]["denied"], 4)
			require.InDelta(t, 10e9, lines[2]["after"], 0.5e9)
			for i, line := range lines {
				require.Equal(t, "WARN", line["level"])
				if i < 2 {
					require.Equal(t, "fallback, or leave it to the caller", line["instead"])
					require.NotEmpty(t, line["error"])
				}
			}
			require.Len(t, events, 2)
			require.Equal(t, throttr.EventUnavailable, events[0].Kind)
			require.Error(t, events[0].Err)
			require.Equal(t, throttr.EventAvailable, events[1].Kind)
		})
	}
}

func TestACallThatIsNotMadeSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newDistant(t)
		store.be(isDown)
		limiter := throttr.NewRateLimit(store, throttr.WithLogger(nil), throttr.WithBreaker(3, time.Hour))
		for range 3 {
			_, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
			require.EqualError(t, err, "throttr: the store is unavailable: nobody listens")
		}
		for name, call := range map[string]func() error{
			"hit":  func() error { _, err := limiter.Hit(t.Context(), "k", time.Minute, 10); return err },
			"peek": func() error { _, err := limiter.Get(t.Context(), "k", time.Minute); return err },
			"take": func() error {
				_, _, err := limiter.TakeAll(t.Context(), throttr.Limit{Max: 1, Scale: time.Minute}.For("k", 1))
				return err
			},
		} {
			err := call()
			require.EqualError(t, err, `throttr: `+name+` "k": the store is unavailable: nobody listens`)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
		time.Sleep(9 * time.Second)
		require.EqualValues(t, 3, store.asked.Load(), "nor is it probed so soon")

		lost := &throttr.RequestError{Call: "hit", Key: "other", Server: "a:1", Sent: true, Err: throttr.ErrConnLost}
		limiter = throttr.NewRateLimit(failing(t, lost), throttr.WithLogger(nil))
		for i := range 4 {
			_, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
			var failed *throttr.RequestError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, i == 3, failed.SafeToRetry(), "call %d", i)
			require.Equal(t, i == 3, failed.Key == "k")
		}
	})
}

// Keys may be personal, and the lines of an outage are on by default.
func TestTheLinesOfAnOutageHaveNoKeys(t *testing.T) {
	for name, cause := range map[string]error{
		"requests": &throttr.RequestError{Call: "hit", Key: "alice", Server: "a:1", Err: throttr.ErrConnLost},
		"calls":    &api.CallError{Package: "rediswindow", Call: "hit", Key: "alice", Err: fmt.Errorf("%w: refused", throttr.ErrUnavailable)},
		"timeouts": context.DeadlineExceeded,
	} {
		synctest.Test(t, func(t *testing.T) {
			store, log := newDistant(t), &journal{}
			limiter := throttr.NewRateLimit(store, throttr.WithLogger(log.logger()), throttr.WithPolicy(throttr.AllowHits))
			store.be(func(ctx context.Context, _ call) error {
				if name == "timeouts" {
					<-ctx.Done()
					return fmt.Errorf("hit alice: %w", cause)
				}
				return cause
			})
			for range 4 {
				decided(t)(limiter.Hit(t.Context(), "alice", time.Minute, 10))
			}
			lines := log.entries(t)
			require.Len(t, lines, 2)
			for _, line := range lines {
				require.NotContains(t, line["error"], "alice", name)
				require.NotEmpty(t, line["error"])
			}
		})
	}
}

// Each server has a circuit, whatever wraps the backend.
func TestThePartsOfAStoreAreItsServers(t *testing.T) {
	a, b := mockserver.RunT(t), mockserver.RunT(t)
	servers := map[string]*mockserver.Server{a.Addr(): a, b.Addr(): b}
	opened := openURL(t, "throttr://"+a.Addr()+","+b.Addr())
	leases := lease.New(opened)
	defer leases.Close()
	require.Equal(t, a.Addr()+","+b.Addr(), outage.Stores(leases))
	for i := range 20 {
		key := fmt.Sprint(i)
		decided(t)(throttr.NewRateLimit(leases).Hit(t.Context(), key, time.Hour, 1000))
		part := outage.PartOf(leases, key)
		require.Contains(t, strings.Join(servers[part].Keys(), " "), ":"+key)
		require.Equal(t, part, outage.PartOf(opened, key))
	}
}

func TestTheFallbackCountsToTheShareOfAProcess(t *testing.T) {
	fallback := inProcess(t)
	limiter := throttr.NewRateLimit(failing(t, throttr.ErrUnavailable), throttr.WithFallback(fallback), throttr.WithProcesses(4), throttr.WithLogger(nil))
	bucket := throttr.Limit{Max: 40, Scale: time.Hour, Burst: 20, Algorithm: throttr.TokenBucket}
	small := bucket
	small.Burst = 3
	for name, c := range map[string]struct {
		limit throttr.Limit
		n     uint64
		want  int
	}{
		"a quarter":        {throttr.Limit{Max: 100, Scale: time.Hour}, 1, 25},
		"at least one":     {throttr.Limit{Max: 3, Scale: time.Hour}, 1, 1},
		"none of none":     {throttr.Limit{Max: 0, Scale: time.Hour}, 1, 0},
		"burst":            {bucket, 1, 5},
		"at least a burst": {small, 1, 1},
		"more than it has": {throttr.Limit{Max: 100, Scale: time.Hour}, 50, 0},
	} {
		granted := 0
		for range 60 {
			res := decided(t)(limiter.Take(t.Context(), name, c.limit, c.n))
			if res.Allowed {
				granted++
			} else if c.limit.Max > 0 {
				require.Less(t, res.RetryAfter, throttr.Never, "the store may be back soon")
			}
			ok, results := allDecided(t)(limiter.TakeAll(t.Context(), c.limit.For(name+", all", c.n), c.limit.For(name+" of others", c.n)))
			require.Equal(t, ok, results[0].Allowed && results[1].Allowed)
		}
		require.Equal(t, c.want, granted, name)
		w, err := fallback.Peek(t.Context(), name+", all", throttr.Limit{Max: 1000, Scale: time.Hour, Algorithm: throttr.FixedWindow}, 0)
		require.NoError(t, err)
		if c.limit.Algorithm == 0 {
			require.EqualValues(t, c.want, w.Count, name)
		}
	}
}

func TestDenialsOfAShareSayWhenTheStoreMayBeBack(t *testing.T) {
	limiter := throttr.NewRateLimit(failing(t, throttr.ErrUnavailable), throttr.WithFallback(inProcess(t)), throttr.WithProcesses(4), throttr.WithLogger(nil))
	for scale, wait := range map[time.Duration]time.Duration{100 * time.Millisecond: time.Second, time.Second: time.Second, time.Hour: time.Hour} {
		limit := throttr.Limit{Max: 100, Scale: scale}
		res := decided(t)(limiter.Take(t.Context(), "k", limit, 50)) // more than a share ever has
		require.Equal(t, throttr.Result{Degraded: true, Limit: 25, RetryAfter: wait}, res)
		_, results := allDecided(t)(limiter.TakeAll(t.Context(), limit.For("k", 50)))
		require.Equal(t, res, results[0])
	}
}

// Without WithLogger, a service that fails open is not silent. A nil logger makes it so.
func TestTheDefaultLoggerReportsOutages(t *testing.T) {
	log := &journal{}
	before := slog.Default()
	slog.SetDefault(log.logger())
	defer slog.SetDefault(before)
	for _, opts := range [][]throttr.Option{{throttr.WithLogger(nil)}, nil} {
		require.Empty(t, log.entries(t))
		limiter := throttr.NewRateLimit(failing(t, throttr.ErrUnavailable), opts...)
		for range 10 {
			_, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
	}
	entries := log.entries(t)
	require.Len(t, entries, 2)
	require.Equal(t, "throttr: decisions without the store", entries[0]["msg"], "the first call has failed")
	require.EqualValues(t, 1, entries[0]["failed"])
	require.Equal(t, "throttr: the store is away", entries[1]["msg"])
}

// What wraps the memory of the process, or leases, may wait: it is a backend like any other.
type blockingMemory struct{ *memory.Backend }

func (blockingMemory) Take(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (w window.Window, err error) {
	return w, hangs(ctx, call{})
}

type blockingLeases struct{ *lease.Backend }

func (blockingLeases) Take(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (w window.Window, err error) {
	return w, hangs(ctx, call{})
}

func TestAWrapperThatBlocksEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, store := inProcess(t, memory.WithClock(time.Now)), newDistant(t)
		store.be(hangs)
		leases := lease.New(m, lease.WithAge(time.Hour))
		defer leases.Close()
		limit := throttr.Limit{Max: 1_000_000, Scale: time.Hour}
		held := throttr.NewRateLimit(leases)
		for range 100 {
			decided(t)(held.Take(t.Context(), "k", limit, 1))
		}
		require.Positive(t, leases.Blocks().Held)
		for _, b := range []throttr.Backend{blockingMemory{m}, blockingLeases{leases}, store} {
			limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil), throttr.WithTimeout(time.Second))
			for i := range 4 {
				begun := time.Now()
				_, err := limiter.Take(t.Context(), "k", limit, 1)
				require.ErrorIs(t, err, throttr.ErrUnavailable)
				want := map[bool]time.Duration{false: time.Second, true: 0}[i == 3]
				require.Equal(t, want, time.Since(begun), "%T: the circuit is open after three calls", b)
			}
		}
	})
}

// The probing of a store that is away does not keep a RateLimit that nobody uses.
func TestAnUnusedRateLimitEndsItsProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newDistant(t)
		store.be(isDown)
		limiter := throttr.NewRateLimit(store, throttr.WithLogger(nil), throttr.WithObserver(func(context.Context, throttr.Event) {}))
		for range 3 {
			_, err := limiter.Hit(t.Context(), "k", time.Hour, 10)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
		used := weak.Make(limiter)
		limiter = nil
		for wait := 0; used.Value() != nil; wait++ { // a goroutine that is about to end may keep it for a moment
			require.Less(t, wait, 5)
			time.Sleep(time.Minute)
			runtime.GC()
		}
		asked := store.asked.Load()
		time.Sleep(time.Hour)
		require.Equal(t, asked, store.asked.Load())
	})
}

// Of a TakeAll on two servers of which one is away, or silent, the error and the log name that one, and its circuit
// alone is opened.
func TestATakeAllBlamesTheServerThatIsAway(t *testing.T) {
	for name, is := range map[string]struct{ known, silent bool }{"known windows": {known: true}, "new windows": {}, "silent": {silent: true}} {
		testkit.Bubble(t, name, func(t *testing.T) {
			servers := testkit.Several(t, 2)
			backend := testkit.Client[uint16](t, servers.Over(throttr.Config{MaxRetries: -1})).Backend()
			log := &journal{}
			limiter := throttr.NewRateLimit(backend, throttr.WithLogger(log.logger()))
			limit := throttr.Limit{Max: 100, Scale: time.Hour}
			keys := map[string]string{}
			for i := range 100 {
				key := strconv.Itoa(i)
				keys[backend.Part(key)] = key
			}
			there, away := keys[servers[0].Addr()], keys[servers[1].Addr()]
			takes := []throttr.Take{limit.For(there, 1), limit.For(away, 1)}
			if is.known {
				ok, _ := allDecided(t)(limiter.TakeAll(t.Context(), takes...))
				require.True(t, ok)
			}
			if is.silent {
				servers[1].HalfOpen()
			} else {
				require.NoError(t, servers[1].Close())
			}
			for range 5 {
				_, _, err := limiter.TakeAll(t.Context(), takes...)
				require.ErrorIs(t, err, throttr.ErrUnavailable)
				var request *throttr.RequestError
				require.ErrorAs(t, err, &request)
				require.Equal(t, servers[1].Addr(), request.Server)
				require.Equal(t, away, request.Key)
			}
			for _, line := range log.entries(t) {
				require.Contains(t, line["error"], servers[1].Addr())
			}
			decided(t)(limiter.Take(t.Context(), there, limit, 1)) // by the circuit of the server that is there
		})
	}
}

// tenAMinute is the limit of the tests of outages, as it is in events.
var tenAMinute = throttr.Limit{Max: 10, Scale: time.Minute, Algorithm: throttr.FixedWindow}

// commandError is an error that can't be compared, as drivers of some databases have.
type commandError []string

func (commandError) Error() string { return "not primary" }

// outcome is what follows from the error of a store.
type outcome struct {
	cause    error          // of the store
	fallback error          // errAnswers: it answers; nil: there is none
	policy   throttr.Policy // which decides if there is no error
	errs     []error        // of the call; a single one is not wrapped
}

var errAnswers, errFull = errors.New("none"), errors.New("full")

// outcomes are what failover decides.
func outcomes() (all []outcome) {
	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		all = append(all, outcome{nil, nil, p, nil}, outcome{nil, errAnswers, p, nil}, outcome{errDown, errAnswers, p, nil})
		for _, mistake := range []error{throttr.ErrUnsupported, &throttr.RangeError{Field: "Max"}} {
			all = append(all, outcome{errDown, mistake, p, []error{errDown, mistake}})
		}
		for _, mistake := range []error{
			throttr.ErrScale, throttr.ErrRange, throttr.ErrClosed, throttr.ErrUnsupported, throttr.ErrConfig,
			&throttr.ValueSizeError{Server: "a:1", Client: 2, Actual: 4}, &throttr.RequestError{Err: throttr.ErrClosed},
			fmt.Errorf("some backend: %w", throttr.ErrScale),
		} {
			all = append(all, outcome{mistake, nil, p, []error{mistake}}, outcome{mistake, errAnswers, p, []error{mistake}})
		}
		for _, cause := range []error{errDown, throttr.ErrFull, throttr.ErrUnavailable, commandError{}} {
			one := outcome{cause, nil, p, []error{cause}}
			both := outcome{cause, errFull, p, []error{cause, errFull}}
			if p != throttr.ReturnError {
				one.errs, both.errs = nil, nil
			}
			all = append(all, one, both)
		}
	}
	return all
}

// Each decision asks the store once, and the fallback once if that fails. The observer is told the cause, whoever
// decides.
func TestWhoDecidesIfTheStoreFails(t *testing.T) {
	for _, o := range outcomes() {
		for name, decide := range decisions {
			for _, leases := range []bool{false, true} {
				if name != "wait" || o.policy != throttr.DenyHits { // which goes on
					o.test(t, name, decide, leases)
				}
			}
		}
	}
}

// is is errors.Is, also of an error that can't be compared.
func is(err, want error) bool {
	return errors.Is(err, want) || errors.As(want, new(commandError)) && errors.As(err, new(commandError))
}

func (o outcome) test(t *testing.T, name string, decide decision, leases bool) {
	var seen recorder
	store, second := failing(t, o.cause), failing(t, o.fallback)
	opts := []throttr.Option{throttr.WithLogger(nil), throttr.WithPolicy(o.policy), throttr.WithObserver(seen.observe), throttr.WithProcesses(3)}
	if o.fallback != nil {
		opts = append(opts, throttr.WithFallback(second))
	}
	if o.fallback == errAnswers {
		second.be(nil)
	}
	backend := throttr.Backend(store)
	if leases {
		l := lease.New(store)
		defer l.Close()
		backend = l
	}
	res, err := decide(t.Context(), throttr.NewRateLimit(backend, opts...), tenAMinute, 1)
	e, text := seen.last(t), fmt.Sprintf("%s: %+v", name, o)
	require.EqualValues(t, 1, store.asked.Load(), text)
	require.LessOrEqual(t, second.asked.Load(), int64(1), text)
	for _, want := range o.errs {
		require.True(t, is(err, want) && is(e.Err, want), "%s: %v, %v", text, err, e.Err)
	}
	switch {
	case len(o.errs) == 1 && !leases:
		require.Equal(t, o.errs[0], err, text)
	case len(o.errs) == 2:
		require.ErrorContains(t, err, "; and the fallback: ")
	}
	if o.errs != nil {
		require.Equal(t, throttr.EventFailed, e.Kind, text)
		require.Zero(t, res)
		return
	}
	require.NoError(t, err, text)
	allowed := o.cause == nil || o.fallback == errAnswers || o.policy == throttr.AllowHits
	require.Equal(t, allowed, res.Allowed, text)
	require.Equal(t, allowed, e.Kind == throttr.EventAllowed, text)
	require.Equal(t, o.cause != nil, res.Degraded, text)
	require.Equal(t, res, e.Result, text)
	require.True(t, is(e.Err, o.cause), text)
	if shared := o.cause != nil && o.fallback == errAnswers; !shared {
		require.EqualValues(t, 10, res.Limit, text)
	}
}

func TestPoliciesDecideIfTheBackendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for limit, wait := range map[throttr.Limit]time.Duration{
			{Max: 10, Scale: time.Millisecond}: time.Millisecond, {Max: 10, Scale: time.Second}: time.Second, {Max: 10, Scale: time.Hour}: time.Second,
			{Max: 10, Calendar: throttr.Month}: time.Second,
		} {
			denied := throttr.Result{Limit: 10, RetryAfter: wait, ResetAfter: wait, ResetAt: time.Now().Add(wait), Degraded: true}
			for policy, want := range map[throttr.Policy]throttr.Result{throttr.AllowHits: {Allowed: true, Limit: 10, Degraded: true}, throttr.DenyHits: denied} {
				limiter := throttr.NewRateLimit(failing(t, errDown), throttr.WithPolicy(policy))
				for call, decide := range decisions {
					if call == "wait" && policy == throttr.DenyHits {
						continue // it goes on
					}
					res := decided(t)(decide(t.Context(), limiter, limit, 3))
					require.Equal(t, want, res, "%v, %s", policy, call)
				}
				unlimited := throttr.Limit{Name: "u", Max: throttr.Unlimited, Scale: time.Minute}
				_, results := allDecided(t)(limiter.TakeAll(t.Context(), unlimited.For("k", 1), limit.For("k", 3)))
				require.Equal(t, throttr.Result{Allowed: true, Limit: throttr.Unlimited, Remaining: throttr.Unlimited}, results[0], "no store is needed for it")
				require.True(t, results[1].Degraded)
				res := decided(t)(limiter.HitN(t.Context(), "k", limit, 11))
				require.Equal(t, throttr.Result{Limit: 10, RetryAfter: throttr.Never}, res, "nor to deny what can never be granted")
			}
		}
	})
}

// policies returns options that turn a failure of the backend into a decision.
func policies(t *testing.T) map[string][]throttr.Option {
	return map[string][]throttr.Option{
		"allow":    {throttr.WithPolicy(throttr.AllowHits)},
		"deny":     {throttr.WithPolicy(throttr.DenyHits)},
		"fallback": {throttr.WithFallback(inProcess(t, memory.WithClock(time.Now)))},
		"all":      {throttr.WithFallback(inProcess(t, memory.WithClock(time.Now))), throttr.WithPolicy(throttr.AllowHits), throttr.WithTimeout(time.Minute)},
	}
}

// lateContext is a context whose deadline has passed, but whose Err is still nil.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }
func (lateContext) Err() error                  { return nil }

func TestPoliciesDoNotApplyToOtherCallsOrIfTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		hit := func(ctx context.Context, backend throttr.Backend, opts ...throttr.Option) error {
			_, err := throttr.NewRateLimit(backend, opts...).Hit(ctx, "k", time.Minute, 10)
			return err
		}
		for name, opts := range policies(t) {
			limiter := throttr.NewRateLimit(failing(t, errDown), opts...)
			_, err := limiter.Get(t.Context(), "k", time.Minute)
			require.ErrorIs(t, err, errDown, "%s: it is no decision", name)
			require.ErrorIs(t, limiter.Reset(t.Context(), "k", time.Minute), errDown, name)
			require.ErrorIs(t, hit(canceled, failing(t, context.Canceled), opts...), context.Canceled, name)
			require.ErrorIs(t, hit(canceled, failing(t, errDown), opts...), errDown, "%s: the cause is another one", name)
			late := lateContext{t.Context()}
			require.ErrorIs(t, hit(late, failing(t, context.DeadlineExceeded), opts...), context.DeadlineExceeded, "%s: the backend is the first to see it", name)
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begun := time.Now()
			store := newDistant(t)
			store.be(hangs)
			require.ErrorIs(t, hit(short, store, opts...), context.DeadlineExceeded, name)
			require.Equal(t, 50*time.Millisecond, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		fallback := newDistant(t)
		fallback.be(func(ctx context.Context, _ call) error { cancel(); return ctx.Err() })
		err := hit(ctx, failing(t, errDown), throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
		require.ErrorIs(t, err, context.Canceled, "it ends during the fallback")
	})
}
