package window_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

func ExampleAlgorithm_Start() {
	now := time.Date(2030, time.May, 4, 12, 34, 56, 0, time.UTC)
	fmt.Println(window.PerKey.Start(now, time.Hour))
	fmt.Println(window.Aligned.Start(now, time.Hour))
	// Output:
	// 2030-05-04 12:34:56 +0000 UTC
	// 2030-05-04 12:00:00 +0000 UTC
}

func TestAlgorithmsHaveNames(t *testing.T) {
	require.Equal(t, "per-key fixed window", window.PerKey.String())
	require.Equal(t, "aligned fixed window", window.Aligned.String())
	require.Equal(t, "unknown algorithm", window.Algorithm(9).String())
}

func TestPerKeyWindowStartsNow(t *testing.T) {
	now := time.Now()
	require.Equal(t, now, window.PerKey.Start(now, time.Hour))
}

func TestAlignedWindowStartsAtMultiplesSince1970(t *testing.T) {
	const week = 7 * 24 * time.Hour
	utc := func(s string) time.Time {
		when, err := time.Parse(time.RFC3339Nano, s)
		require.NoError(t, err)
		return when.UTC()
	}
	for _, test := range []struct {
		now   string
		scale time.Duration
		want  string
	}{
		{"2030-01-01T10:00:00Z", time.Hour, "2030-01-01T10:00:00Z"},
		{"2030-01-01T10:00:00.000000001Z", time.Hour, "2030-01-01T10:00:00Z"},
		{"2030-01-01T10:59:59.999999999Z", time.Hour, "2030-01-01T10:00:00Z"},
		{"2030-01-01T10:00:00.000000123Z", 10, "2030-01-01T10:00:00.00000012Z"},
		{"2030-01-01T10:00:00.000000123Z", 1, "2030-01-01T10:00:00.000000123Z"},
		{"1970-01-01T00:00:00Z", week, "1970-01-01T00:00:00Z"},
		{"1970-01-07T23:59:59Z", week, "1970-01-01T00:00:00Z"},
		{"1970-01-08T00:00:00Z", week, "1970-01-08T00:00:00Z"},
		{"1969-12-31T23:59:59.999999999Z", week, "1969-12-25T00:00:00Z"},
		{"1969-12-25T00:00:00Z", week, "1969-12-25T00:00:00Z"},
		{"1969-12-31T23:59:59.5Z", time.Second, "1969-12-31T23:59:59Z"},
		{"0001-01-01T00:00:00Z", time.Minute, "0001-01-01T00:00:00Z"},
		{"0001-01-01T00:00:00Z", week, "0000-12-28T00:00:00Z"},
		{"9999-12-31T23:59:59Z", time.Minute, "9999-12-31T23:59:00Z"},
		{"2030-01-01T00:00:00Z", math.MaxInt64, "1970-01-01T00:00:00Z"},
		{"2030-01-01T00:00:00.5Z", 0, "2030-01-01T00:00:00.5Z"},
	} {
		got := window.Aligned.Start(utc(test.now), test.scale)
		require.Equal(t, utc(test.want), got, "%s, %v", test.now, test.scale)
	}
}

func TestAlignedWindowsDoNotDependOnTheTimeZone(t *testing.T) {
	now := time.Date(2030, time.May, 4, 12, 34, 56, 0, time.FixedZone("", 5*3600+1800))
	start := window.Aligned.Start(now, time.Hour)
	require.Equal(t, time.Date(2030, time.May, 4, 7, 0, 0, 0, time.UTC), start.UTC())
	require.Equal(t, now.Location(), start.Location())
}
