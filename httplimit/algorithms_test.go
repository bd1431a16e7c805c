package httplimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
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
