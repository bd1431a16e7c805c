package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDurationsHaveDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "1.5d": 36 * time.Hour, "2d12h30m": 2*day + 12*time.Hour + 30*time.Minute, "-1d12h": -36 * time.Hour,
		"0d": 0, "1d0s": day, "90s": 90 * time.Second, "106751d23h": 106751*day + 23*time.Hour,
		"0.7d": 16*time.Hour + 48*time.Minute, "+.1d": 144 * time.Minute, "-0.3d12m": -(7*time.Hour + 24*time.Minute),
	} {
		got, err := parseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"d", "1dd", "1d-1h", "1d+1h", "1hd", "1h2d", "1d2", "106752d", "106751d24h", "-106752d", "day",
		"--1d", "+-1d", "1e1d", "0x1d", "1_0d", "infd", ".d", "1d+0s", "99999999999999999999d"} {
		_, err := parseDuration(text)
		require.Error(t, err, text)
	}
	for i := range 1000 {
		text := fmt.Sprintf("%d.%03dd", i/7, i)
		got, err := parseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, time.Duration(i/7)*day+time.Duration(i)*day/1000, got, text)
	}
	_, err := parseDuration("3")
	require.EqualError(t, err, "a duration needs a unit, such as 3s")
}

func TestScalesAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Second: "1s", 70 * time.Second: "1m10s",
		200 * time.Millisecond: "200ms", time.Hour + time.Second: "1h0m1s", 0: "0s",
	} {
		require.Equal(t, want, formatScale(d))
	}
}
