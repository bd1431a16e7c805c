package httplimit_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/mockserver"
)

// newAlgorithmSite returns a site with a limit of an algorithm: 5 in 10 s.
func newAlgorithmSite(t *testing.T, a throttr.Algorithm, cfg httplimit.Config) *site {
	t.Helper()
	cfg.Limits = []throttr.Limit{{Name: "x", Max: 5, Scale: 10 * time.Second, Algorithm: a}}
	return newSite(t, cfg)
}

// outcome is what a request at a time gets.
type outcome struct {
	at    time.Duration
	field string // r and t
	retry string // Retry-After; "" if it is served
}

func TestFieldsOfEachAlgorithm(t *testing.T) {
	for algorithm, requests := range map[throttr.Algorithm][]outcome{
		throttr.FixedWindow: {
			{0, "r=4;t=10", ""}, {4 * time.Second, "r=3;t=6", ""},
			{4 * time.Second, "r=2;t=6", ""}, {4 * time.Second, "r=1;t=6", ""}, {4 * time.Second, "r=0;t=6", ""},
			{4 * time.Second, "r=0;t=6", "6"}, {10 * time.Second, "r=4;t=10", ""},
		},
		throttr.AlignedWindow: {
			{4 * time.Second, "r=4;t=6", ""}, {4 * time.Second, "r=3;t=6", ""}, {10 * time.Second, "r=4;t=10", ""},
		},
		// A token refills in 2 s. The quota is whole again when all have.
		throttr.TokenBucket: {
			{0, "r=4;t=2", ""}, {0, "r=3;t=4", ""}, {0, "r=2;t=6", ""}, {0, "r=1;t=8", ""}, {0, "r=0;t=10", ""},
			{0, "r=0;t=2", "2"}, {1500 * time.Millisecond, "r=0;t=1", "1"},
			{2 * time.Second, "r=0;t=10", ""}, {2 * time.Second, "r=0;t=2", "2"}, {22 * time.Second, "r=4;t=2", ""},
		},
		// Each hit counts for 10 s.
		throttr.SlidingLog: {
			{0, "r=4;t=10", ""}, {3 * time.Second, "r=3;t=10", ""}, {4 * time.Second, "r=2;t=10", ""},
			{4 * time.Second, "r=1;t=10", ""}, {4 * time.Second, "r=0;t=10", ""}, {5 * time.Second, "r=0;t=5", "5"},
			{10 * time.Second, "r=0;t=10", ""}, {10 * time.Second, "r=0;t=3", "3"}, {14 * time.Second, "r=3;t=10", ""},
		},
		// The 5 of the first 10 s count as 4 from 12 s on, as 3 from 14 s on. The count is 0 again at 30 s,
		// which is more than the throttr.
		throttr.SlidingWindow: {
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
	for _, algorithm := range []throttr.Algorithm{throttr.TokenBucket, throttr.SlidingWindow, throttr.SlidingLog} {
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

// newMixedSite returns a site with a limit of 2 tokens in 10 s and one of 3 in an hour.
func newMixedSite(t *testing.T, cfg httplimit.Config) *site {
	t.Helper()
	cfg.Limits = []throttr.Limit{
		{Name: "burst", Max: 2, Scale: 10 * time.Second, Algorithm: throttr.TokenBucket}, {Name: "hour", Max: 3, Scale: time.Hour},
	}
	return newSite(t, cfg)
}

func TestLimitsOfDifferentAlgorithmsCountTogetherOrNotAtAll(t *testing.T) {
	s := newMixedSite(t, httplimit.Config{})
	for i, want := range []struct {
		advance time.Duration
		field   string
		retry   string
	}{
		{0, `"burst";r=1;t=5, "hour";r=2;t=3600`, ""},
		{0, `"burst";r=0;t=10, "hour";r=1;t=3600`, ""},
		{0, `"burst";r=0;t=5, "hour";r=1;t=3600`, "5"},
		{5 * time.Second, `"burst";r=0;t=10, "hour";r=0;t=3595`, ""},
		{5 * time.Second, `"burst";r=1;t=5, "hour";r=0;t=3590`, "3590"},
		{0, `"burst";r=1;t=5, "hour";r=0;t=3590`, "3590"},
	} {
		s.clock.Advance(want.advance)
		res := s.get(alice)
		require.Equal(t, want.field, res.Header.Get("RateLimit"), i)
		require.Equal(t, want.retry, res.Header.Get("Retry-After"), i)
		require.Equal(t, `"burst";q=2;w=10, "hour";q=3;w=3600`, res.Header.Get("RateLimit-Policy"))
	}
}

func TestRefundGivesBackToAllLimits(t *testing.T) {
	s := newMixedSite(t, httplimit.Config{})
	for range 10 {
		require.Equal(t, http.StatusAccepted, s.get(alice).StatusCode)
		require.NoError(t, s.decision.Refund(t.Context()))
		require.NoError(t, s.decision.Refund(t.Context()), "only the first call does something")
	}
}

// A request that costs more than one of the limits can ever grant is denied for good, and counts in none.
func TestCostAboveALimitCountsNothing(t *testing.T) {
	cost := uint64(3)
	s := newMixedSite(t, httplimit.Config{Cost: func(*http.Request) uint64 { return cost }, Legacy: httplimit.LegacySeconds})
	res := s.get(alice)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	for _, field := range []string{"Retry-After", "RateLimit", "X-RateLimit-Reset"} {
		require.Empty(t, res.Header.Get(field), field)
	}
	cost = 2
	require.Equal(t, `"burst";r=0;t=10, "hour";r=1;t=3600`, s.get(alice).Header.Get("RateLimit"))
}

func TestABurstIsServedAtOnce(t *testing.T) {
	s := newSite(t, httplimit.Config{Limits: []throttr.Limit{{Name: "x", Max: 1, Scale: time.Second, Burst: 3, Algorithm: throttr.TokenBucket}}})
	require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, alice))
	require.Equal(t, "1", s.get(alice).Header.Get("Retry-After"))
	s.clock.Advance(time.Second)
	require.Equal(t, []int{202, 429}, s.statuses(2, alice))
}

func TestUnlimitedHasNoFieldsAndDeniesNothing(t *testing.T) {
	for _, hits := range []bool{false, true} {
		s := newSite(t, httplimit.Config{
			Limits: []throttr.Limit{httplimit.PerHour(throttr.Unlimited)}, Legacy: httplimit.LegacySeconds, CountRefusals: hits,
		})
		for range 5 {
			res := s.get(alice)
			require.Equal(t, http.StatusAccepted, res.StatusCode)
			require.Equal(t, http.Header{"X-Handler": {"was here"}}, res.Header)
		}
	}
	s := newSite(t, httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(throttr.Unlimited), httplimit.PerMinute(1)}})
	res := s.get(alice)
	require.Equal(t, `"minute";q=1;w=60`, res.Header.Get("RateLimit-Policy"))
	require.Equal(t, `"minute";r=0;t=60`, res.Header.Get("RateLimit"))
	require.Equal(t, []int{429}, s.statuses(1, alice))
}

func TestAlgorithmThatABackendDoesNotHaveIsAMistake(t *testing.T) {
	servers, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{mockserver.RunT(t).Addr()}})
	require.NoError(t, err)
	t.Cleanup(func() { servers.Close() })
	s := &site{clock: backendtest.NewClock(), limiter: throttr.NewRateLimit(servers.Backend(), throttr.WithPolicy(throttr.AllowHits))}
	bucket := throttr.Limit{Name: "x", Max: 5, Scale: time.Second, Algorithm: throttr.TokenBucket}
	_, err = httplimit.New(s.limiter, httplimit.Config{Limits: []throttr.Limit{bucket}})
	require.ErrorIs(t, err, throttr.ErrUnsupported)
	require.ErrorIs(t, err, throttr.ErrConfig)

	// A plan is not checked before.
	s.wrap(t, httplimit.Config{Plan: func(*http.Request) *httplimit.Plan { return httplimit.MustPlan(bucket) }})
	require.Equal(t, http.StatusInternalServerError, s.get(alice).StatusCode)
}

func TestPeekAndResetOfEachAlgorithm(t *testing.T) {
	for algorithm := throttr.FixedWindow; algorithm <= limits.LastAlgorithm; algorithm++ {
		m, clock := newMiddleware(t, httplimit.Config{Limits: []throttr.Limit{{Name: "x", Max: 2, Scale: 10 * time.Second, Algorithm: algorithm}}})
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
