package window_test

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/testkit"
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

func TestTextsOfAlgorithmsAndUnits(t *testing.T) {
	testTexts(t, window.CalendarWindow, "algorithm")
	testTexts(t, window.Year, "calendar unit")
	require.Equal(t, "sliding-window", window.SlidingWindow.String())
	require.Equal(t, "month", window.Month.String())
}

type named interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}

// testTexts tests that the texts of all values up to the last one are those of their String, and others are errors.
func testTexts[T named, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, last T, kind string) {
	for v := range last + 1 {
		text, err := v.MarshalText()
		require.NoError(t, err)
		require.Equal(t, v.String(), string(text))
		back := T(77)
		require.NoError(t, P(&back).UnmarshalText(text))
		require.Equal(t, v, back)
	}
	require.Equal(t, kind+" 77", T(77).String())
	_, err := T(77).MarshalText()
	require.ErrorIs(t, err, window.ErrUnsupported)
	v := last
	err = P(&v).UnmarshalText([]byte("slidng"))
	require.ErrorIs(t, err, window.ErrUnsupported)
	require.ErrorContains(t, err, last.String(), "it says which there are")
	require.Equal(t, last, v)
}

func TestLimitsAreFormatted(t *testing.T) {
	for want, l := range map[string]window.Limit{
		"quota: 10 in a month of Europe/Berlin":           {Name: "quota", Max: 10, Calendar: window.Month, Zone: "Europe/Berlin"},
		"10 in a week from day 7 of UTC, calendar window": {Max: 10, Calendar: window.Week, StartDay: 7, Algorithm: window.CalendarWindow},
		"10 in a year of UTC":                             {Max: 10, Calendar: window.Year, StartDay: 1},
		"1 at a time":                                     {Max: 1},
		"unlimited, shadow":                               {Max: window.Unlimited, Shadow: true},
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
	require.ErrorIs(t, window.ErrUnsupported, errors.ErrUnsupported)
	require.NotErrorIs(t, syscall.EOPNOTSUPP, window.ErrUnsupported, "which is errors.ErrUnsupported, too")
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
	_, err = testkit.Collect(t, b.List(ctx))
	require.ErrorIs(t, err, window.ErrUnsupported)
	_, err = testkit.Collect(t, b.ListPlaces(ctx, "k"))
	require.ErrorIs(t, err, window.ErrUnsupported)
	require.ErrorIs(t, b.Exchange(ctx, []window.Claim{{Key: "k"}}, make([]window.Places, 1)), window.ErrUnsupported)
}

func TestASchemeHasOneDriver(t *testing.T) {
	open := func(context.Context, string) (window.BackendCloser, error) { return nil, nil }
	scheme := fmt.Sprint("test-", time.Now().UnixNano()) // a new one each time the test runs
	window.Register(scheme, open)
	require.Panics(t, func() { window.Register(scheme, open) })
	require.Panics(t, func() { window.Register("test-nil", nil) })
}
