package throttr_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
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
	for _, a := range []throttr.Algorithm{99, throttr.CalendarWindow} { // a constant of the program
		require.PanicsWithValue(t, "throttr: WithAlgorithm: "+a.String()+" is no algorithm for limits with a Scale", func() { throttr.WithAlgorithm(a) })
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

// upTo100 is a store that can't keep a Max over 100, as that of a small number can't.
type upTo100 struct{ *distant }

func (s upTo100) Check(l throttr.Limit) (window.Traits, error) {
	if l.Max > 100 {
		return window.Traits{}, &throttr.RangeError{Field: "Max", Value: fmt.Sprint(l.Max), Bound: "at most 100"}
	}
	return s.Backend.Check(l)
}

func (s upTo100) Take(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if _, err = s.Check(l); err == nil {
		w, err = s.distant.Take(ctx, key, l, n)
	}
	return w, err
}

// A mistake is an error at any time, under every policy, and says nothing about the store: neither that it is away, nor
// that it is back.
func TestAMistakeIsAnErrorDuringAnOutage(t *testing.T) {
	bad := throttr.Limit{Max: 101, Scale: time.Minute}
	for name, opts := range policies(t) {
		synctest.Test(t, func(t *testing.T) {
			store := upTo100{newDistant(t)}
			limiter := throttr.NewRateLimit(store, append(opts, throttr.WithLogger(nil))...)
			mistakes := func() {
				t.Helper()
				for call, err := range everyCall(t.Context(), limiter, bad) {
					if call != "Forget" { // which needs no Max
						require.ErrorIs(t, err, throttr.ErrRange, "%s: %s", name, call)
					}
				}
			}
			store.be(isDown)
			for range 3 {
				res, err := limiter.Take(t.Context(), "k", tenAMinute, 1)
				require.NoError(t, err)
				require.True(t, res.Degraded)
			}
			asked := store.asked.Load()
			require.EqualValues(t, 3, asked)
			mistakes()
			store.be(onlyReads) // a probe is answered, and what counts is refused
			time.Sleep(time.Second)
			_, err := limiter.Take(t.Context(), "k", bad, 1) // the trial
			require.ErrorIs(t, err, throttr.ErrRange)
			asked = store.asked.Load()
			for i := range 10 {
				_, err := limiter.Take(t.Context(), "k", tenAMinute, 1)
				require.NoError(t, err)
				require.Equal(t, asked+1, store.asked.Load(), "%s: after %d calls: the mistake has closed the circuit", name, i)
			}
		})
	}
}
