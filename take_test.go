package throttr_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/window"
)

func TestAMaxOf0DeniesEverything(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	for a := throttr.FixedWindow; a <= throttr.SlidingLog; a++ {
		none, charged := throttr.Limit{Max: 0, Scale: time.Minute, Algorithm: a}, uint64(0)
		if a == throttr.TokenBucket {
			none.Burst = 5
		}
		for call, decide := range withPeek() {
			for _, n := range []uint64{0, 1, 5} {
				if call == "wait" || n == 0 && call != "peek" && call != "hit" { // a mistake
					continue
				}
				res := decided(t)(decide(t.Context(), limiter, none, n))
				require.False(t, res.Allowed, "%s of %d of %v", call, n, none)
				if call != "charge" { // which counts whatever the limit says, unless tokens never come back
					require.Equal(t, throttr.Never, res.RetryAfter, "%s of %d of %v", call, n, none)
				} else if !a.Rolling() {
					charged += n
					require.Equal(t, charged, res.Count, "%s of %d of %v", call, n, none)
					require.Equal(t, charged, decided(t)(limiter.Peek(t.Context(), "k", none, 0)).Count)
				}
			}
		}
	}
}

func TestACallThatCountsNothingOrANegativeNumberIsAMistake(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	for call, decide := range withPeek() {
		_, err := decide(t.Context(), limiter, tenAMinute, 0)
		if call != "hit" && call != "peek" {
			require.ErrorIs(t, err, throttr.ErrRange, call)
		}
		_, err = decide(t.Context(), limiter, tenAMinute, 1<<63)
		require.ErrorIs(t, err, throttr.ErrRange, call)
	}
	_, err := limiter.Inc(t.Context(), "k", time.Minute, 0)
	require.ErrorIs(t, err, throttr.ErrRange)
	require.ErrorContains(t, err, `inc "k"`)
}

// takesAllBy is a backend whose takes of several counts are made by a function.
type takesAllBy struct {
	throttr.Backend
	takeAll func(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error)
}

func (b takesAllBy) TakeAll(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	return b.takeAll(ctx, takes, windows)
}

func TestABackendMayUseTheTakesOfACallThatHasFailed(t *testing.T) {
	var kept []throttr.Take  // of the first call
	var late []window.Window // of the last call
	store := takesAllBy{inProcess(t), func(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
		if kept == nil {
			kept = takes
		}
		late = windows
		return false, context.DeadlineExceeded
	}}
	r := throttr.NewRateLimit(store, throttr.WithPolicy(throttr.AllowHits), throttr.WithBreaker(1000, 0))
	limit := throttr.Limit{Max: 10, Scale: time.Hour}
	longer := throttr.Limit{Max: 10, Scale: 2 * time.Hour}
	for i := range 100 {
		key := strconv.Itoa(i)
		ok, _ := allDecided(t)(r.TakeAll(t.Context(), limit.For(key, 1), longer.For(key, 1)))
		require.True(t, ok, "by the policy")
	}
	require.Equal(t, "0", kept[0].Key)

	// The fallback makes takes while the backend still writes the windows of its own.
	m := inProcess(t)
	fallback := takesAllBy{m, func(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
		granted, err := m.TakeAll(ctx, takes, windows)
		for i := range late {
			late[i] = window.Window{Count: 99}
		}
		return granted, err
	}}
	r = throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithLogger(nil))
	other := throttr.NewRateLimit(inProcess(t))
	for i := range 100 {
		key := strconv.Itoa(i)
		allDecided(t)(other.TakeAll(t.Context(), limit.For(key, 1), longer.For(key, 1))) // the next call may use its room
		_, results := allDecided(t)(r.TakeAll(t.Context(), limit.For(key, 1), longer.For(key, 2)))
		require.EqualValues(t, 1, results[0].Count)
		require.EqualValues(t, 2, results[1].Count)
	}
}

// A backend finds no windows of an earlier call in those that it sets, nor of an earlier attempt of a wait. Results stay
// those of their call, however many takes it makes.
func TestWindowsOfACallAreItsOwn(t *testing.T) {
	refused := false
	store := takesAllBy{inProcess(t), func(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
		for i := range windows {
			require.Zero(t, windows[i])
			windows[i] = window.Window{Count: takes[i].N, Left: time.Millisecond, Refused: refused}
		}
		granted := !refused
		refused = false
		return granted, nil
	}}
	limiter := throttr.NewRateLimit(store)
	longer := tenAMinute
	longer.Scale = time.Hour
	var made [][]throttr.Result
	for n := range 100 {
		var takes []throttr.Take
		for i := range 2 + n%5 {
			takes = append(takes, tenAMinute.For(strconv.Itoa(i), uint64(1+i)))
		}
		ok, results := allDecided(t)(limiter.TakeAll(t.Context(), takes...))
		require.True(t, ok)
		rv := reserve(t, limiter, takes...)
		made = append(made, results, rv.Results())
	}
	for n, results := range made {
		require.Len(t, results, 2+n/2%5)
		for i := range results {
			require.EqualValues(t, 1+i, results[i].Count)
		}
	}
	refused = true
	_, err := limiter.WaitAll(t.Context(), tenAMinute.For("k", 1), longer.For("k", 1))
	require.NoError(t, err)
	require.False(t, refused)
}

// If one limit can never grant its take, wherever it stands, no store is asked.
func TestTakesOfWhichOneIsNeverGranted(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	decided(t)(limiter.Take(t.Context(), "other", tenAMinute, 1))
	for _, takes := range [][]throttr.Take{
		{tenAMinute.For("k", 11), tenAMinute.For("other", 1)}, {tenAMinute.For("other", 1), tenAMinute.For("k", 11)},
	} {
		ok, results := allDecided(t)(limiter.TakeAll(t.Context(), takes...))
		require.False(t, ok)
		for i, take := range takes {
			want := throttr.Result{Limit: 10, Allowed: true}
			if take.N > 10 {
				want = throttr.Result{Limit: 10, RetryAfter: throttr.Never}
			}
			require.Equal(t, want, results[i])
		}
	}
	ok, results := allDecided(t)(limiter.TakeAll(t.Context()))
	require.True(t, ok, "without takes")
	require.Empty(t, results)
}

func TestReservationIsSettledWithWhatWasUsed(t *testing.T) {
	b, clock := newMemory(t)
	limiter := throttr.NewRateLimit(b)
	tokens := throttr.Limit{Max: 1000, Scale: time.Minute}.For("tokens", 700)
	requests := throttr.Limit{Max: 5, Scale: time.Second}.For("requests", 1)
	rv := reserve(t, limiter, tokens, requests)
	denied, ok, err := limiter.Reserve(t.Context(), tokens, requests)
	require.NoError(t, err)
	require.False(t, ok)
	require.False(t, denied.Results()[0].Allowed)
	require.NoError(t, denied.Commit(t.Context(), 5, 5))
	require.NoError(t, denied.Cancel(t.Context()))
	require.NoError(t, rv.Commit(t.Context(), 100, 1))
	require.NoError(t, rv.Commit(t.Context(), 1, 0), "the second one does nothing")
	require.NoError(t, rv.Cancel(t.Context()))
	require.EqualValues(t, 100, count(t, limiter, "tokens", time.Minute))
	require.EqualValues(t, 1, count(t, limiter, "requests", time.Second))
	require.NoError(t, reserve(t, limiter, tokens).Commit(t.Context()), "all of it was used")
	require.EqualValues(t, 800, count(t, limiter, "tokens", time.Minute))
	require.NoError(t, reserve(t, limiter, throttr.Limit{Max: 1000, Scale: time.Minute}.For("tokens", 10)).Commit(t.Context(), 400))
	require.EqualValues(t, 1200, count(t, limiter, "tokens", time.Minute), "an overrun counts beyond the limit")

	ctx, cancel := context.WithCancel(t.Context())
	rv, _, err = limiter.Reserve(ctx, tenAMinute.For("k", 8))
	require.NoError(t, err)
	cancel() // that of a request has often ended when it is settled
	require.NoError(t, rv.Cancel(ctx))
	require.Zero(t, count(t, limiter, "k", time.Minute))

	// Windows of different keys have different IDs.
	for n, key := range []string{"first", "second"} {
		decided(t)(limiter.Take(t.Context(), key, tenAMinute, uint64(n+1)))
		clock.Advance(10 * time.Second)
	}
	rv = reserve(t, limiter, tenAMinute.For("first", 5), tenAMinute.For("second", 5))
	require.NoError(t, rv.Commit(t.Context(), 1, 2))
	require.EqualValues(t, 1+1, count(t, limiter, "first", time.Minute))
	require.EqualValues(t, 2+2, count(t, limiter, "second", time.Minute))
}

// A Cancel that is deferred gives nothing back after a Commit that was a mistake.
func TestCommitThatIsAMistakeSettlesAsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			used []uint64
			want error
		}{{[]uint64{1 << 63}, throttr.ErrConfig}, {[]uint64{0, 0, 0}, throttr.ErrConfig}, {[]uint64{1, 1 << 63}, throttr.ErrRange}} {
			limiter := testkit.Limiter[uint16](t, testkit.InMemory(t))
			rv := reserve(t, limiter, tenAMinute.For("requests", 5), throttr.Limit{Max: 1000, Scale: time.Minute}.For("tokens", 400))
			err := rv.Commit(t.Context(), c.used...)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "settled as reserved")
			require.NoError(t, rv.Cancel(t.Context()))
			require.NoError(t, rv.Commit(t.Context(), 0, 0))
			require.EqualValues(t, 5, count(t, limiter, "requests", time.Minute))
			require.EqualValues(t, 400, count(t, limiter, "tokens", time.Minute))
		}
	})
}

func TestReservationIsSettledWithTheBackendThatGrantedIt(t *testing.T) {
	store, fallback := failing(t, errDown), inProcess(t)
	take := tenAMinute.For("k", 8)
	limiter := throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
	rv := reserve(t, limiter, take)
	require.True(t, rv.Results()[0].Degraded)
	byPolicy := reserve(t, throttr.NewRateLimit(store, throttr.WithPolicy(throttr.AllowHits)), take)
	store.be(nil) // it works again
	own := reserve(t, limiter, take)
	require.NoError(t, rv.Commit(t.Context(), 9))
	require.NoError(t, byPolicy.Commit(t.Context(), 100), "what a policy allows is counted nowhere")
	require.EqualValues(t, 9, count(t, throttr.NewRateLimit(fallback), "k", time.Minute))
	require.EqualValues(t, 8, count(t, limiter, "k", time.Minute))
	require.NoError(t, own.Cancel(t.Context()))
	require.Zero(t, count(t, limiter, "k", time.Minute))
}

func TestReservationIsSettledOnceByManyGoroutines(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	limit := throttr.Limit{Max: 1000, Scale: time.Hour}
	for range 100 {
		reserve(t, limiter, limit.For("k", 1))
		rv := reserve(t, limiter, limit.For("k", 5))
		testkit.Together(t, 8, func(int) error { return rv.Cancel(t.Context()) })()
	}
	require.EqualValues(t, 100, count(t, limiter, "k", time.Hour))
}

func TestLimitsAreSettledEvenIfOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newDistant(t)
		var seen []string
		limiter := throttr.NewRateLimit(store, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventSettled {
				seen = append(seen, e.Key)
				require.Equal(t, 250*time.Millisecond, e.Duration)
			}
		}))
		var takes []throttr.Take
		for _, key := range []string{"a", "b", "c", "d"} {
			takes = append(takes, throttr.Limit{Max: 10, Scale: time.Hour}.For(key, 5))
		}
		rv := reserve(t, limiter, takes...)
		store.be(func(ctx context.Context, c call) error {
			if c.key == "a" || c.key == "c" {
				return hangs(ctx, c)
			}
			return nil
		})
		begun := time.Now()
		require.ErrorIs(t, rv.Cancel(t.Context()), context.DeadlineExceeded)
		require.Equal(t, 250*time.Millisecond, time.Since(begun), "all are settled at the same time")
		require.Equal(t, []string{"a", "b", "c", "d"}, seen)
		store.be(nil)
		for key, left := range map[string]uint64{"a": 5, "b": 0, "c": 5, "d": 0} {
			require.Equal(t, left, count(t, limiter, key, time.Hour), key)
		}
	})
}

func TestTakesOfOneCountAreSettledTogether(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	limit := throttr.Limit{Max: 10, Scale: time.Hour}
	for _, c := range []struct{ first, second, left uint64 }{{2, 3, 5}, {4, 4, 8}, {9, 0, 9}, {0, 7, 7}, {6, 6, 12}, {math.MaxInt64, math.MaxInt64, math.MaxInt64}} {
		rv := reserve(t, limiter, limit.For("k", 4), limit.For("k", 4))
		require.NoError(t, rv.Commit(t.Context(), c.first, c.second))
		require.Equal(t, c.left, count(t, limiter, "k", time.Hour))
		require.NoError(t, limiter.Reset(t.Context(), "k", time.Hour))
	}
}

// What panics in a goroutine would end the program. Its caller may recover it, as HTTP servers do.
func TestAPanicIsTheCallers(t *testing.T) {
	store := newDistant(t)
	store.be(func(_ context.Context, c call) error {
		if c.name == "give back" || c.key == "panic" {
			panic(c.name)
		}
		return nil
	})
	limiter := throttr.NewRateLimit(store)
	shadow := tenAMinute
	shadow.Shadow = true
	rv := reserve(t, limiter, tenAMinute.For("a", 5), tenAMinute.For("b", 5))
	require.PanicsWithValue(t, "give back", func() { rv.Cancel(t.Context()) })
	require.PanicsWithValue(t, "take", func() {
		limiter.TakeAll(t.Context(), tenAMinute.For("c", 5), shadow.For("d", 1), shadow.For("panic", 1))
	})
	require.EqualValues(t, 5, count(t, limiter, "c", time.Minute))
}

// The error of a limit is returned, whatever stands before it, and that of a shadow limit is not. Each take has its own
// number and its own error.
func TestErrorsOfSettlingAreThoseOfTheirLimits(t *testing.T) {
	var seen recorder
	store := newDistant(t)
	store.be(func(_ context.Context, c call) error {
		if c.name == "give back" && c.key == "away" {
			return throttr.ErrUnavailable
		}
		return nil
	})
	limiter := throttr.NewRateLimit(store, throttr.WithObserver(seen.observe))
	shadow := throttr.Limit{Name: "shadow", Max: 10, Scale: time.Minute, Shadow: true}
	unlimited := throttr.Limit{Max: throttr.Unlimited, Scale: time.Hour}
	rv := reserve(t, limiter, shadow.For("away", 1), unlimited.For("away", 1), shadow.For("k", 3), tenAMinute.For("away", 1))
	require.ErrorIs(t, rv.Commit(t.Context(), 0, 0, 2, 0), throttr.ErrUnavailable)
	require.NoError(t, rv.Cancel(t.Context()), "what may have been given back is not given back again")
	require.EqualValues(t, 2, decided(t)(limiter.Peek(t.Context(), "k", shadow, 0)).Count)
	require.NoError(t, reserve(t, limiter, shadow.For("away", 1), unlimited.For("away", 1)).Cancel(t.Context()))
	for _, e := range seen.events {
		if e.Kind == throttr.EventSettled {
			require.Equal(t, e.Limit.Max == throttr.Unlimited || e.Key == "k", e.Err == nil, "%v of %s", e.Limit, e.Key)
		}
	}
}

// verdict is a backend that grants or refuses everything, with a window that may not agree.
type verdict struct {
	window.Unimplemented
	granted   bool
	window    window.Window
	algorithm throttr.Algorithm // that of its limiters
}

func (v verdict) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func (v verdict) Hit(context.Context, string, throttr.Limit, uint64) (window.Window, error) {
	return v.window, nil
}

func (v verdict) Take(context.Context, string, throttr.Limit, uint64) (window.Window, error) {
	w := v.window
	w.Refused = !v.granted
	return w, nil
}

func (v verdict) TakeAll(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	for i := range takes {
		windows[i] = v.window
	}
	return v.granted, nil
}

func (v verdict) GiveBack(context.Context, string, throttr.Limit, uint64, int64) (bool, error) {
	return true, nil
}

// verdicts are backends whose windows do not agree with what they decide. Limits are 10.
func verdicts() (all []verdict) {
	for _, w := range []window.Window{
		{}, {Refused: true}, {RetryAfter: time.Second}, {Count: 10, Left: time.Minute}, {Count: 11, Left: time.Minute},
		{Count: 1, Left: time.Minute, RetryAfter: time.Second, Refused: true}, {Count: 1 << 60, Left: time.Minute, Refused: true},
	} {
		w.ID = 1
		for _, algorithm := range []throttr.Algorithm{throttr.FixedWindow, throttr.SlidingWindow} {
			all = append(all, verdict{window: w, algorithm: algorithm}, verdict{window: w, algorithm: algorithm, granted: true})
		}
	}
	return all
}

func (v verdict) String() string {
	return fmt.Sprintf("%v, granted %v, refused %v, count %d, retry after %v",
		v.algorithm, v.granted, v.window.Refused, v.window.Count, v.window.RetryAfter)
}

// A take is allowed if and only if the backend has granted it, whatever its window says.
func TestWhatABackendGrantsIsWhatIsAllowed(t *testing.T) {
	for _, v := range verdicts() {
		t.Run(v.String(), func(t *testing.T) {
			testVerdict(t, throttr.NewRateLimit(v, throttr.WithAlgorithm(v.algorithm)), v.granted)
			away := failing(t, throttr.ErrConnLost)
			testVerdict(t, throttr.NewRateLimit(away, throttr.WithAlgorithm(v.algorithm), throttr.WithFallback(v)), v.granted)
			if v.algorithm != throttr.FixedWindow {
				return
			}
			leases := lease.New(v, lease.WithAge(time.Hour))
			defer leases.Close()
			testVerdict(t, throttr.NewRateLimit(leases), v.granted)
		})
	}
}

func testVerdict(t *testing.T, limiter *throttr.RateLimit, granted bool) {
	limit := throttr.Limit{Max: 10, Scale: time.Minute}
	k, other := limit.For("k", 1), limit.For("l", 1)
	res := decided(t)(limiter.Take(t.Context(), "k", limit, 1))
	require.Equal(t, granted, res.Allowed)
	for _, takes := range [][]throttr.Take{{k}, {k, k}, {k, other}} {
		ok, results := allDecided(t)(limiter.TakeAll(t.Context(), takes...))
		requireVerdict(t, granted, ok, results)
		rv, ok, err := limiter.Reserve(t.Context(), takes...)
		require.NoError(t, err)
		requireVerdict(t, granted, ok, rv.Results())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
	defer cancel()
	if granted {
		ctx = t.Context()
	}
	res, err := limiter.Wait(ctx, "k", limit, 1)
	require.Equal(t, granted, err == nil && res.Allowed, err)
}

// requireVerdict fails a test if takes that were granted are denied, or the other way round.
func requireVerdict(t *testing.T, granted, ok bool, results []throttr.Result) {
	t.Helper()
	require.Equal(t, granted, ok)
	allowed := 0
	for _, res := range results {
		if res.Allowed {
			allowed++
			require.Zero(t, res.RetryAfter)
		}
	}
	if granted {
		require.Len(t, results, allowed)
	} else {
		require.Less(t, allowed, len(results))
	}
}

// What a backend refuses is denied. A hit that it has not refused is allowed if the algorithm has decided
// on it, and otherwise if the count is within the limit.
func TestAHitThatABackendRefusesIsDenied(t *testing.T) {
	for _, v := range verdicts() {
		within := !v.window.Refused && v.window.Count <= 10
		allowed := within || !v.window.Refused && v.algorithm.Rolling()
		var event throttr.Event
		observer := throttr.WithObserver(func(_ context.Context, e throttr.Event) { event = e })
		for name, limiter := range map[string]*throttr.RateLimit{
			"backend":  throttr.NewRateLimit(v, throttr.WithAlgorithm(v.algorithm)),
			"observer": throttr.NewRateLimit(v, throttr.WithAlgorithm(v.algorithm), observer),
			"fallback": throttr.NewRateLimit(failing(t, throttr.ErrConnLost), throttr.WithAlgorithm(v.algorithm), throttr.WithFallback(v)),
		} {
			for _, n := range []uint64{0, 1, 10} {
				res := decided(t)(limiter.HitN(t.Context(), "k", throttr.Limit{Max: 10, Calendar: throttr.Day}, n))
				require.Equal(t, !within, res.RetryAfter > 0, "%s: %v", name, v)
				res = decided(t)(limiter.HitN(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Minute}, n))
				require.Equal(t, allowed, res.Allowed, "%s: %v", name, v)
				require.Equal(t, !allowed, res.RetryAfter > 0, "%s: %v", name, v)
			}
		}
		require.Equal(t, allowed, event.Kind == throttr.EventAllowed, "%v", v)
	}
}
