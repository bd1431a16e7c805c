package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// model is the simplest implementation of per-key windows. As on servers, a hit on a window that is
// over its limit does not count, nor does one that the counter can't hold.
type model map[modelKey]modelWindow

type modelKey struct {
	key   string
	scale time.Duration
}

type modelWindow struct {
	count uint64
	end   time.Time
}

// window returns the active window, or one that opens now.
func (m model) window(k modelKey) modelWindow {
	if w := m[k]; time.Now().Before(w.end) {
		return w
	}
	return modelWindow{end: time.Now().Add(k.scale)}
}

// hit returns the window after a hit, and whether it was allowed. The counter holds counts up to counter.
func (m model) hit(k modelKey, limit, counter, n uint64) (w modelWindow, allowed bool) {
	w = m.window(k)
	allowed = w.count <= limit && n <= limit-w.count
	if w.count <= limit && n <= counter-w.count {
		w.count = min(w.count+n, math.MaxInt64) // as the Result says it
	}
	m[k] = w
	return w, allowed
}

// inc counts n. A count that would pass maxCount stays there.
func (m model) inc(k modelKey, maxCount, n uint64) modelWindow {
	w := m.window(k)
	w.count += min(n, maxCount-w.count)
	m[k] = w
	return w
}

func (m model) set(k modelKey, n uint64) { m[k] = modelWindow{n, time.Now().Add(k.scale)} }

// active returns the active window, or the zero modelWindow.
func (m model) active(k modelKey) modelWindow {
	if w := m[k]; time.Now().Before(w.end) {
		return w
	}
	return modelWindow{}
}

func TestOneClientDoesWhatTheModelDoes(t *testing.T) {
	t.Run("uint8", testOneClient[uint8])
	t.Run("uint16", testOneClient[uint16])
	t.Run("uint32", testOneClient[uint32])
	t.Run("uint64", testOneClient[uint64])
}

func testOneClient[T codec.Value](t *testing.T) {
	const runs = 25
	first := rand.Uint64()
	t.Logf("seeds %d to %d", first, first+runs-1)
	for i := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) { compareWithModel[T](t, first+i) })
		if t.Failed() {
			return
		}
	}
}

// compareWithModel makes random calls, one after the other, and compares the results with those of
// the model.
func compareWithModel[T codec.Value](t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithHazard(mockserver.LateExpiry, r.IntN(2) == 0))
	limiter := testkit.NewRateLimit(testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{})).Backend())
	ctx, maxCount := t.Context(), min(uint64(^T(0)), math.MaxInt64)
	amounts := []uint64{0, 1, 1, 1, 2, 3, 10, maxCount / 2, maxCount - 1, maxCount}
	limits := []uint64{0, 1, 2, 5, 20, maxCount / 2, maxCount - 1, min(maxCount, throttr.Unlimited-1)}
	scales := []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}
	if codec.Size[T]() == 1 {
		scales[0] = 2 * time.Second
	}
	m := model{}
	for i := range 500 {
		k := modelKey{string('a' + rune(r.IntN(3))), scales[r.IntN(len(scales))]}
		limit := limits[r.IntN(len(limits))]
		n := amounts[r.IntN(len(amounts))]
		what := fmt.Sprintf("seed %d, step %d: key %s, scale %v, limit %d, n %d", seed, i, k.key, k.scale, limit, n)
		switch op := r.IntN(16); {
		case op < 6:
			res, err := limiter.HitN(ctx, k.key, throttr.Limit{Max: limit, Scale: k.scale}, n)
			require.NoError(t, err, what)
			if n > limit || limit == 0 {
				require.Equal(t, throttr.Result{Limit: limit, RetryAfter: throttr.Never}, res, "hit: "+what)
				continue
			}
			w, allowed := m.hit(k, limit, uint64(^T(0)), n)
			want := throttr.Result{Allowed: allowed, Count: w.count, Limit: limit, ResetAfter: time.Until(w.end), ResetAt: w.end}
			want.Remaining = limit - min(w.count, limit)
			if !allowed {
				want.RetryAfter = time.Until(w.end)
			}
			require.Equal(t, want, res, "hit: "+what)
		case op < 8:
			got, err := limiter.Inc(ctx, k.key, k.scale, n)
			require.NoError(t, err, "inc: "+what)
			require.Equal(t, m.inc(k, maxCount, n).count, got, "inc: "+what)
		case op == 8:
			got, err := limiter.Set(ctx, k.key, k.scale, n)
			require.NoError(t, err, "set: "+what)
			require.Equal(t, n, got, "set: "+what)
			m.set(k, n)
		case op == 9:
			require.NoError(t, limiter.Reset(ctx, k.key, k.scale), "reset: "+what)
			delete(m, k)
		case op == 10:
			got, err := limiter.Get(ctx, k.key, k.scale)
			require.NoError(t, err, "get: "+what)
			require.Equal(t, m.active(k).count, got, "get: "+what)
		case op == 11:
			end, err := limiter.ExpiresAt(ctx, k.key, k.scale)
			require.NoError(t, err, "expires at: "+what)
			require.Equal(t, m.active(k).end, end, "expires at: "+what)
		case op == 12: // to the end of a window, or to the nanosecond before or after it
			time.Sleep(max(time.Until(m[k].end), 0) + time.Duration(r.IntN(3)-1))
		case op == 13:
			time.Sleep(time.Duration(r.Int64N(int64(3 * k.scale))))
		default:
			time.Sleep(time.Duration(r.Int64N(int64(k.scale / 4))))
		}
	}
	time.Sleep(testkit.Idle[T](t, time.Minute))
	require.Empty(t, testkit.Keys(srv), "seed %d: records that were not removed", seed)
	require.Zero(t, srv.Expired(), "seed %d: records that expired", seed)
}
