package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// limiterOf returns a RateLimit in memory with an algorithm.
func limiterOf(t *testing.T, a window.Algorithm, clock backendtest.Clock, opts ...throttr.Option) *throttr.RateLimit {
	t.Helper()
	backend := memory.New(memory.WithAlgorithm(a), memory.WithClock(clock.Now), memory.WithCleanPeriod(0))
	t.Cleanup(func() { backend.Close() })
	return throttr.NewRateLimit(backend, opts...)
}

// newAlgorithmSite returns a site with a limit of an algorithm: 5 in 10 s.
func newAlgorithmSite(t *testing.T, a window.Algorithm, cfg httplimit.Config) *site {
	t.Helper()
	s := &site{clock: backendtest.NewClock()}
	s.limiter = limiterOf(t, a, s.clock)
	cfg.Limits = []httplimit.Limit{{Name: "x", Limit: 5, Window: 10 * time.Second}}
	s.wrap(t, cfg)
	return s
}

// outcome is what a request at a time gets.
type outcome struct {
	at    time.Duration
	field string // r and t
	retry string // Retry-After; "" if it is served
}

//evidence:http The fields tell what remains and when more is there, with each algorithm
func TestFieldsOfEachAlgorithm(t *testing.T) {
	for algorithm, requests := range map[window.Algorithm][]outcome{
		window.PerKey: {
			{0, "r=4;t=10", ""}, {4 * time.Second, "r=3;t=6", ""},
			{4 * time.Second, "r=2;t=6", ""}, {4 * time.Second, "r=1;t=6", ""}, {4 * time.Second, "r=0;t=6", ""},
			{4 * time.Second, "r=0;t=6", "6"}, {10 * time.Second, "r=4;t=10", ""},
		},
		window.Aligned: {
			{4 * time.Second, "r=4;t=6", ""}, {4 * time.Second, "r=3;t=6", ""}, {10 * time.Second, "r=4;t=10", ""},
		},
		// A token refills in 2 s. The quota is whole again when all have.
		window.TokenBucket: {
			{0, "r=4;t=2", ""}, {0, "r=3;t=4", ""}, {0, "r=2;t=6", ""}, {0, "r=1;t=8", ""}, {0, "r=0;t=10", ""},
			{0, "r=0;t=2", "2"}, {1500 * time.Millisecond, "r=0;t=1", "1"},
			{2 * time.Second, "r=0;t=10", ""}, {2 * time.Second, "r=0;t=2", "2"}, {22 * time.Second, "r=4;t=2", ""},
		},
		// Each hit counts for 10 s.
		window.SlidingLog: {
			{0, "r=4;t=10", ""}, {3 * time.Second, "r=3;t=10", ""}, {4 * time.Second, "r=2;t=10", ""},
			{4 * time.Second, "r=1;t=10", ""}, {4 * time.Second, "r=0;t=10", ""}, {5 * time.Second, "r=0;t=5", "5"},
			{10 * time.Second, "r=0;t=10", ""}, {10 * time.Second, "r=0;t=3", "3"}, {14 * time.Second, "r=3;t=10", ""},
		},
		// The 5 of the first 10 s count as 4 from 12 s on, as 3 from 14 s on. The count is 0 again at 30 s,
		// which is more than the window.
		window.Sliding: {
			{9 * time.Second, "r=4;t=10", ""}, {9 * time.Second, "r=3;t=10", ""}, {9 * time.Second, "r=2;t=10", ""},
			{9 * time.Second, "r=1;t=10", ""}, {9 * time.Second, "r=0;t=10", ""}, {9 * time.Second, "r=0;t=3", "3"},
			{12 * time.Second, "r=0;t=10", ""}, {12 * time.Second, "r=0;t=2", "2"}, {14 * time.Second, "r=0;t=10", ""},
		},
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			s := newAlgorithmSite(t, algorithm, httplimit.Config{})
			start := s.clock.Now()
			for i, want := range requests {
				s.clock.Advance(start.Add(want.at).Sub(s.clock.Now()))
				res := s.get(alice)
				require.Equal(t, `"x";`+want.field, res.Header.Get("RateLimit"), i)
				require.Equal(t, `"x";q=5;w=10`, res.Header.Get("RateLimit-Policy"))
				require.Equal(t, want.retry, res.Header.Get("Retry-After"), i)
				require.Equal(t, want.retry != "", res.StatusCode == http.StatusTooManyRequests, i)
			}
		})
	}
}

// TestRefusedRequestsDelayNobody sends many refused requests, also with CountRefusals, which has no
// effect on these algorithms.
func TestRefusedRequestsDelayNobody(t *testing.T) {
	for _, algorithm := range []window.Algorithm{window.TokenBucket, window.Sliding, window.SlidingLog} {
		for _, countRefusals := range []bool{false, true} {
			s := newAlgorithmSite(t, algorithm, httplimit.Config{CountRefusals: countRefusals})
			s.statuses(5, alice)
			retry := s.get(alice).Header.Get("Retry-After")
			for range 100 {
				require.Equal(t, retry, s.get(alice).Header.Get("Retry-After"))
			}
			seconds, err := strconv.Atoi(retry)
			require.NoError(t, err)
			s.clock.Advance(time.Duration(seconds) * time.Second)
			require.Equal(t, http.StatusAccepted, s.get(alice).StatusCode, algorithm)
		}
	}
}

// newMixedSite returns a site with a limit of 2 tokens in 10 s and one of 3 in an hour, in two backends.
func newMixedSite(t *testing.T, opts ...throttr.Option) *site {
	t.Helper()
	s := &site{clock: backendtest.NewClock()}
	s.limiter = limiterOf(t, window.PerKey, s.clock, opts...)
	s.wrap(t, httplimit.Config{Limits: []httplimit.Limit{
		{Name: "burst", Limit: 2, Window: 10 * time.Second, Limiter: limiterOf(t, window.TokenBucket, s.clock, opts...)},
		{Name: "hour", Limit: 3, Window: time.Hour},
	}})
	return s
}

//evidence:http Limits of different algorithms apply together: all count, or none
func TestLimitsOfDifferentAlgorithmsCountTogetherOrNotAtAll(t *testing.T) {
	s := newMixedSite(t)
	for i, want := range []struct {
		advance time.Duration
		field   string
		retry   string
	}{
		{0, `"burst";r=1;t=5, "hour";r=2;t=3600`, ""},
		{0, `"burst";r=0;t=10, "hour";r=1;t=3600`, ""},
		{0, `"burst";r=0;t=5`, "5"}, // the other limiter is not asked
		{5 * time.Second, `"burst";r=0;t=10, "hour";r=0;t=3595`, ""},
		{5 * time.Second, `"burst";r=1;t=10, "hour";r=0;t=3590`, "3590"}, // given back
		{0, `"burst";r=1;t=10, "hour";r=0;t=3590`, "3590"},
	} {
		s.clock.Advance(want.advance)
		res := s.get(alice)
		require.Equal(t, want.field, res.Header.Get("RateLimit"), i)
		require.Equal(t, want.retry, res.Header.Get("Retry-After"), i)
		require.Equal(t, `"burst";q=2;w=10, "hour";q=3;w=3600`, res.Header.Get("RateLimit-Policy"))
	}
}

func TestRefundGivesBackToAllLimiters(t *testing.T) {
	s := newMixedSite(t)
	for range 10 {
		require.Equal(t, http.StatusAccepted, s.get(alice).StatusCode)
		require.NoError(t, s.decision.Refund(t.Context()))
		require.NoError(t, s.decision.Refund(t.Context()), "only the first call does something")
	}
}

func TestCostAboveALimitOfAnotherLimiterCountsNothing(t *testing.T) {
	s := &site{clock: backendtest.NewClock()}
	s.limiter = limiterOf(t, window.PerKey, s.clock)
	cost := uint64(3)
	s.wrap(t, httplimit.Config{
		Limits: []httplimit.Limit{
			{Name: "burst", Limit: 5, Window: 10 * time.Second, Limiter: limiterOf(t, window.TokenBucket, s.clock)},
			{Name: "hour", Limit: 2, Window: time.Hour},
		},
		Cost: func(*http.Request) uint64 { return cost },
	})
	res := s.get(alice)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Equal(t, "3600", res.Header.Get("Retry-After"))
	cost = 2
	require.Equal(t, `"burst";r=3;t=4, "hour";r=0;t=3600`, s.get(alice).Header.Get("RateLimit"))
}

// TestEventsNameLimitsOfAllLimiters checks that the observers of both receive the names.
func TestEventsNameLimitsOfAllLimiters(t *testing.T) {
	var names []string
	s := newMixedSite(t, throttr.WithObserver(throttr.ObserverFunc(func(_ context.Context, e throttr.Event) { names = append(names, e.Name) })))
	s.get(alice)
	require.Equal(t, []string{"burst", "hour"}, names)
}

func TestOneLimiterFailsAndTheOthersStillApply(t *testing.T) {
	s := &site{clock: backendtest.NewClock()}
	s.limiter = limiterOf(t, window.SlidingLog, s.clock)
	down := errors.New("down")
	backend := memory.New(memory.WithClock(s.clock.Now))
	t.Cleanup(func() { backend.Close() })
	failing := throttr.NewRateLimit(broken{backend, func(time.Duration) error { return down }})
	s.wrap(t, httplimit.Config{Limits: []httplimit.Limit{
		{Name: "shared", Limit: 2, Window: time.Second, Limiter: failing}, {Name: "own", Limit: 2, Window: time.Minute},
	}})
	require.Equal(t, []int{202, 202, 429}, s.statuses(3, alice))
	require.ErrorIs(t, s.decision.Err, down)
}

// unsupported is a backend that can't do its algorithm.
type unsupported struct{ window.Backend }

var errCantDo = errors.Join(errors.New("no such algorithm"), errors.ErrUnsupported)

func (unsupported) Check(time.Duration, uint64) error { return errCantDo }

func (unsupported) Hit(context.Context, string, time.Duration, uint64, uint64) (window.Window, error) {
	return window.Window{}, errCantDo
}

func TestAlgorithmThatABackendCantDoIsAMistake(t *testing.T) {
	clock := backendtest.NewClock()
	backend := memory.New(memory.WithClock(clock.Now))
	t.Cleanup(func() { backend.Close() })
	cant := throttr.NewRateLimit(unsupported{backend})
	limits := []httplimit.Limit{httplimit.PerMinute(3)}
	_, err := httplimit.New(cant, httplimit.Config{Limits: limits})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, err, httplimit.ErrConfig)

	limits[0].Limiter = cant
	_, err = httplimit.New(limiterOf(t, window.PerKey, clock), httplimit.Config{Limits: limits})
	require.ErrorIs(t, err, errors.ErrUnsupported)

	servers, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{mockserver.RunT(t).Addr()}})
	require.NoError(t, err)
	t.Cleanup(func() { servers.Close() })
	limits[0].Limiter = throttr.NewRateLimit(servers.Backend(throttr.WithAlgorithm(window.TokenBucket)), throttr.WithPolicy(throttr.AllowHits))
	_, err = httplimit.New(limiterOf(t, window.PerKey, clock), httplimit.Config{Limits: limits})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, window.Sliding.String())

	// A plan is not checked before.
	s := newSite(t, httplimit.Config{Plan: func(*http.Request) *httplimit.Plan { return httplimit.MustPlan(limits...) }})
	require.Equal(t, http.StatusInternalServerError, s.get(alice).StatusCode)
}

func TestPeekAndResetOfEachAlgorithm(t *testing.T) {
	for _, algorithm := range []window.Algorithm{window.PerKey, window.Aligned, window.TokenBucket, window.Sliding, window.SlidingLog} {
		clock := backendtest.NewClock()
		m, err := httplimit.NewMiddleware(limiterOf(t, window.PerKey, clock), httplimit.Config{
			Limits: []httplimit.Limit{{Name: "x", Limit: 2, Window: 10 * time.Second, Limiter: limiterOf(t, algorithm, clock)}},
			Clock:  clock.Now,
		})
		require.NoError(t, err)
		s := &site{Handler: m.Wrap(http.NotFoundHandler()), clock: clock}
		peek := func() httplimit.Outcome {
			outcomes, err := m.Peek(t.Context(), "192.0.2.1")
			require.NoError(t, err)
			require.Len(t, outcomes, 1)
			return outcomes[0]
		}
		require.EqualValues(t, 2, peek().Remaining)
		s.statuses(2, alice)
		denied := peek()
		require.False(t, denied.Allowed, algorithm)
		require.Zero(t, denied.Remaining)
		require.Positive(t, denied.RetryAfter)
		require.Equal(t, 429, s.get(alice).StatusCode)

		clock.Advance(denied.RetryAfter)
		require.True(t, peek().Allowed, algorithm)
		require.NoError(t, m.Reset(t.Context(), "192.0.2.1"))
		require.EqualValues(t, 2, peek().Remaining, algorithm)
	}
}
