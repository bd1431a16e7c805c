package window_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

func ExampleLimit() {
	login := window.Limit{Name: "login", Max: 5, Scale: time.Hour, Burst: 10, Algorithm: window.TokenBucket}
	fmt.Println(login)
	fmt.Println(login.For("user:42", 1).N)
	// Output:
	// login: 5 in 1h0m0s, token bucket of 10
	// 1
}

func TestTextsOfAlgorithms(t *testing.T) {
	for a := range window.CalendarWindow + 1 {
		text, err := a.MarshalText()
		require.NoError(t, err)
		require.Equal(t, a.String(), string(text))
		back := window.Algorithm(77)
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, a, back)
	}
	require.Equal(t, "sliding-window", window.SlidingWindow.String())
	require.Equal(t, "algorithm 77", window.Algorithm(77).String())
	_, err := window.Algorithm(77).MarshalText()
	require.ErrorIs(t, err, window.ErrUnsupported)
	a := window.SlidingLog
	require.ErrorIs(t, a.UnmarshalText([]byte("slidng")), window.ErrUnsupported)
	require.Equal(t, window.SlidingLog, a)
}

func TestTextsOfCalendarUnits(t *testing.T) {
	for c := range window.Year + 1 {
		text, err := c.MarshalText()
		require.NoError(t, err)
		require.Equal(t, c.String(), string(text))
		back := window.Calendar(77)
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, c, back)
	}
	require.Equal(t, "month", window.Month.String())
	require.Equal(t, "calendar unit 77", window.Calendar(77).String())
	_, err := window.Calendar(77).MarshalText()
	require.ErrorIs(t, err, window.ErrUnsupported)
	c := window.Week
	require.ErrorIs(t, c.UnmarshalText([]byte("fortnight")), window.ErrUnsupported)
	require.Equal(t, window.Week, c)
}

func TestLimitsWithACalendarAreFormatted(t *testing.T) {
	for want, l := range map[string]window.Limit{
		"quota: 10 in a month of Europe/Berlin":           {Name: "quota", Max: 10, Calendar: window.Month, Zone: "Europe/Berlin"},
		"10 in a week from day 7 of UTC, calendar window": {Max: 10, Calendar: window.Week, StartDay: 7, Algorithm: window.CalendarWindow},
	} {
		require.Equal(t, want, l.String())
	}
}

func TestRollingAlgorithmsAreThree(t *testing.T) {
	for a, want := range map[window.Algorithm]bool{
		0: false, window.FixedWindow: false, window.AlignedWindow: false, window.TokenBucket: true,
		window.SlidingWindow: true, window.SlidingLog: true, window.CalendarWindow: false, 77: false,
	} {
		require.Equal(t, want, a.Rolling(), "%v", a)
	}
}

func TestRangeErrorMatchesErrRangeAndNamesTheSizeThatWouldDo(t *testing.T) {
	err := &window.RangeError{Field: "Max", Value: "300", Bound: "at most 191", Size: 1, Needs: 2}
	require.ErrorIs(t, fmt.Errorf("wrapped: %w", err), window.ErrRange)
	require.EqualError(t, err, "throttr: Max 300 is out of range: 1-byte values hold at most 191; 2-byte values (uint16) would do")
	err.Needs = 0
	require.EqualError(t, err, "throttr: Max 300 is out of range: 1-byte values hold at most 191; no value size would do")
	err.Size = 0
	require.EqualError(t, err, "throttr: Max 300 is out of range: it may be at most 191")
}

func TestErrorsOfBackendsAreDistinct(t *testing.T) {
	all := []error{window.ErrScale, window.ErrRange, window.ErrUnsupported, window.ErrConfig, window.ErrClosed,
		window.ErrOverloaded, window.ErrFull, window.ErrUnavailable}
	for i, a := range all {
		for j, b := range all {
			require.Equal(t, i == j, errors.Is(a, b), "%v, %v", a, b)
		}
	}
}

func TestWhatAnOperatingSystemCallsUnsupportedIsNoMistake(t *testing.T) {
	require.ErrorIs(t, window.ErrUnsupported, errors.ErrUnsupported)
	require.ErrorIs(t, syscall.EOPNOTSUPP, errors.ErrUnsupported)
	require.NotErrorIs(t, syscall.EOPNOTSUPP, window.ErrUnsupported)
}

func TestMethodsThatAreLeftOutAreUnsupported(t *testing.T) {
	var b window.Backend = struct{ window.Unimplemented }{}
	ctx, l := context.Background(), window.Limit{Max: 1, Scale: time.Second, Algorithm: window.FixedWindow}
	_, err := b.Check(l)
	require.ErrorIs(t, err, window.ErrUnsupported)
	for _, call := range []func(context.Context, string, window.Limit, uint64) (window.Window, error){b.Hit, b.Take, b.Charge, b.Peek, b.Set} {
		_, err := call(ctx, "k", l, 1)
		require.ErrorIs(t, err, window.ErrUnsupported)
	}
	_, err = b.TakeAll(ctx, []window.Take{l.For("k", 1)}, make([]window.Window, 1))
	require.ErrorIs(t, err, window.ErrUnsupported)
	_, err = b.GiveBack(ctx, "k", l, 1, 1)
	require.ErrorIs(t, err, window.ErrUnsupported)
	_, err = b.Delete(ctx, "k")
	require.ErrorIs(t, err, window.ErrUnsupported)
	require.ErrorIs(t, b.Reset(ctx, "k", l), window.ErrUnsupported)
	for listed, err := range b.List(ctx) {
		require.Zero(t, listed)
		require.ErrorIs(t, err, window.ErrUnsupported)
	}
	for listed, err := range b.ListPlaces(ctx, "k") {
		require.Zero(t, listed)
		require.ErrorIs(t, err, window.ErrUnsupported)
	}
	require.ErrorIs(t, b.Exchange(ctx, []window.Claim{{Key: "k"}}, make([]window.Places, 1)), window.ErrUnsupported)
}

func TestASchemeHasOneDriver(t *testing.T) {
	open := func(context.Context, string) (window.BackendCloser, error) { return nil, nil }
	window.Register("test-window", open)
	require.Panics(t, func() { window.Register("test-window", open) })
	require.Panics(t, func() { window.Register("test-nil", nil) })
}
