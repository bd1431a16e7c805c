package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDurationsHaveDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "-2d": -2 * day, "0d": 0, "36h": 36 * time.Hour, "90s": 90 * time.Second, "106751d": 106751 * day,
	} {
		got, err := parseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"d", "1dd", "1d12h", "1.5d", "106752d", "-106752d", "day", "--1d", "0x1d", "infd", "99999999999999999999d"} {
		_, err := parseDuration(text)
		require.EqualError(t, err, "not a duration such as 60s, 1h30m or 7d", text)
	}
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
