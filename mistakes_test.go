package throttr_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// everyCall returns the errors of all calls with a limit.
func everyCall(ctx context.Context, l *throttr.RateLimit, limit throttr.Limit) map[string]error {
	errs := map[string]error{"Check": l.Check(limit), "Forget": l.Forget(ctx, "k", limit)}
	for call, decide := range withPeek() {
		_, errs[call] = decide(ctx, l, limit, 1)
	}
	_, _, errs["take of two"] = l.TakeAll(ctx, limit.For("k", 1), limit.For("l", 1))
	return errs
}

// everyCallOfAScale returns the errors of all calls that have a scale in place of a limit.
func everyCallOfAScale(ctx context.Context, l *throttr.RateLimit, scale time.Duration) map[string]error {
	errs := map[string]error{"Reset": l.Reset(ctx, "k", scale)}
	_, errs["Hit"] = l.Hit(ctx, "k", scale, 5)
	_, errs["Inc"] = l.Inc(ctx, "k", scale, 1)
	_, errs["Get"] = l.Get(ctx, "k", scale)
	_, errs["Set"] = l.Set(ctx, "k", scale, 1)
	_, errs["ExpiresAt"] = l.ExpiresAt(ctx, "k", scale)
	return errs
}

// withoutTakes is a backend that keeps any limit, and leaves all calls to [window.Unimplemented].
type withoutTakes struct{ window.Unimplemented }

func (withoutTakes) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

// A mistake is an error of every call, whatever the policy and the backend are. The backend is not asked.
func TestAMistakeIsAnErrorOfEveryCall(t *testing.T) {
	policies := []throttr.Option{throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(inProcess(t))}
	for _, backend := range []throttr.Backend{inProcess(t), withoutTakes{}} {
		l := throttr.NewRateLimit(backend, policies...)
		for field, limit := range map[string]throttr.Limit{
			"Calendar":  {Max: 5, Scale: time.Minute, Algorithm: throttr.CalendarWindow},
			"Scale":     {Max: 5, Scale: time.Minute, Calendar: throttr.Month},
			"Algorithm": {Max: 5, Calendar: throttr.Month, Algorithm: throttr.TokenBucket},
			"StartDay":  {Max: throttr.Unlimited, Scale: time.Minute, StartDay: 2},
			"Zone":      {Max: 0, Calendar: throttr.Day, Zone: "Local"},
		} {
			for call, err := range everyCall(t.Context(), l, limit) {
				var e *throttr.RangeError
				require.ErrorAs(t, err, &e, "%s of %v", call, limit)
				require.Equal(t, field, e.Field, call)
			}
		}
		for _, scale := range []time.Duration{-time.Second, 0, 60, window.MinScale - 1} {
			for _, errs := range []map[string]error{everyCall(t.Context(), l, throttr.Limit{Max: 5, Scale: scale}), everyCallOfAScale(t.Context(), l, scale)} {
				for call, err := range errs {
					require.ErrorIs(t, err, throttr.ErrScale, "%s of %v", call, scale)
					require.ErrorContains(t, err, "did you forget the unit?")
				}
			}
			_, err := l.Delete(t.Context(), "k", time.Hour, scale)
			require.ErrorIs(t, err, throttr.ErrScale)
		}
		for call, err := range everyCall(t.Context(), l, throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: 99}) {
			require.ErrorIs(t, err, throttr.ErrUnsupported, call)
		}
	}
	for call, err := range everyCall(t.Context(), throttr.NewRateLimit(withoutTakes{}, policies...), throttr.Limit{Max: 5, Scale: time.Minute}) {
		if call != "Check" {
			require.ErrorIs(t, err, throttr.ErrUnsupported, "%s: no policy grants what a backend does not have", call)
		}
	}
	for call, err := range everyCallOfAScale(t.Context(), throttr.NewRateLimit(inProcess(t)), window.MinScale) {
		require.NoError(t, err, call)
	}
}

// Throttr servers keep fixed windows alone, whether they are there or not. The error names what they keep.
func TestAlgorithmsThatServersCannotKeepAreMistakes(t *testing.T) {
	for _, away := range []bool{false, true} {
		srv := testkit.InMemory(t)
		srv.Refuse(away)
		cfg := testkit.Over(srv, throttr.Config{Lazy: away})
		client, err := throttr.Connect[uint16](t.Context(), cfg)
		require.NoError(t, err)
		defer client.Close()
		opened, err := throttr.OpenServers(t.Context(), cfg)
		require.NoError(t, err)
		defer opened.Close()
		for _, b := range []throttr.Backend{client.Backend(), opened} {
			for name, opts := range policies(t) {
				for _, a := range []throttr.Algorithm{throttr.AlignedWindow, throttr.SlidingWindow, throttr.SlidingLog, throttr.TokenBucket} {
					l := throttr.NewRateLimit(b, append(opts, throttr.WithAlgorithm(a))...)
					for _, errs := range []map[string]error{everyCall(t.Context(), l, throttr.Limit{Max: 5, Scale: time.Minute}), everyCallOfAScale(t.Context(), l, time.Minute)} {
						for call, err := range errs {
							require.ErrorIs(t, err, throttr.ErrUnsupported, "%s, away: %v, %T, %s", call, away, b, name)
							require.ErrorContains(t, err, a.String(), call)
						}
					}
					require.ErrorContains(t, l.Check(throttr.Limit{Max: 5, Scale: time.Minute}), throttr.FixedWindow.String())
				}
			}
		}
	}
}

// What counts without a Max is unsupported.
func TestRollingCallsNeedAMax(t *testing.T) {
	for _, a := range []throttr.Algorithm{throttr.TokenBucket, throttr.SlidingWindow, throttr.SlidingLog} {
		limiter := throttr.NewRateLimit(inProcess(t), throttr.WithAlgorithm(a))
		for call, err := range everyCallOfAScale(t.Context(), limiter, time.Minute) {
			if call == "Hit" || call == "Reset" {
				require.NoError(t, err, call)
				continue
			}
			require.ErrorIs(t, err, throttr.ErrUnsupported, call)
		}
		for _, n := range []uint64{0, math.MaxUint64} {
			_, err := limiter.Inc(t.Context(), "k", time.Minute, n)
			require.ErrorIs(t, err, throttr.ErrUnsupported, "no number would do")
		}
	}
}

// limits are some that a server of small values can't keep, and some that it can.
var limits = []struct {
	scale time.Duration
	limit uint64
}{
	{time.Minute, 100}, {time.Second, 191}, {time.Second, 192}, {time.Hour, 65471}, {time.Hour, 65472}, {time.Hour, 100_000},
	{90500 * time.Millisecond, 5}, {24*time.Hour + time.Second, 5}, {24 * time.Hour, 5}, {time.Minute, math.MaxUint64},
	{60, 5}, {0, 5}, {-time.Second, 5}, {time.Millisecond, 5},
}

// Check foretells what a hit returns.
func TestCheckRefusesWhatHitsRefuse(t *testing.T) {
	for _, size := range []int{0, 1, 2, 4, 8} {
		synctest.Test(t, func(t *testing.T) {
			b := throttr.Backend(inProcess(t, memory.WithClock(time.Now)))
			if size > 0 {
				srv := testkit.InMemory(t, mockserver.WithValueSize(size))
				opened := openOver(t, testkit.Over(srv, throttr.Config{Parking: throttr.ParkingAlways}))
				defer opened.Close()
				b = opened
			}
			l := throttr.NewRateLimit(b)
			for _, c := range limits {
				_, err := l.Hit(t.Context(), "k", c.scale, c.limit)
				checked := l.Check(throttr.Limit{Max: c.limit, Scale: c.scale})
				refused := errors.Is(err, throttr.ErrScale) || errors.Is(err, throttr.ErrRange)
				require.Equal(t, refused, checked != nil, "%d bytes, %d in %v: %v, but Check: %v", size, c.limit, c.scale, err, checked)
				_, err = b.Check(throttr.Limit{Max: 1, Scale: 60, Algorithm: throttr.FixedWindow})
				require.ErrorIs(t, err, throttr.ErrScale)
			}
		})
	}
}

func TestCheckKnowsTheFallbackToo(t *testing.T) {
	l := throttr.NewRateLimit(inProcess(t), throttr.WithFallback(openURL(t, "throttr://"+mockserver.RunT(t).Addr())))
	require.NoError(t, l.Check(throttr.Limit{Max: 1000, Scale: time.Hour}))
	require.ErrorIs(t, l.Check(throttr.Limit{Max: 100_000, Scale: time.Hour}), throttr.ErrRange)
}
