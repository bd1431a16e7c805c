package limiter_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

var writeTable = flag.Bool("limiter.write", false, "write the table of round trips")

// TestTableOfRoundTrips compares how long hits, Set and Reset take on servers far away with a table. With
// -limiter.write, it writes the table.
func TestTableOfRoundTrips(t *testing.T) {
	const path = "testdata/round-trips.txt"
	table := roundTripsTable(t)
	if *writeTable {
		require.NoError(t, os.WriteFile(path, []byte(table), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), table)
}

// roundTripsTable returns the table. Scales that take equally long share a row.
func roundTripsTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| the server responds after | scale | hit on a known window | hit that opens one | `Set` | `Reset` |\n|---|---|---|---|---|---|\n")
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		var rows []string // the cells of each row
		var scales [][]string
		for _, scale := range farScales {
			cells := ""
			synctest.Test(t, func(t *testing.T) { cells = roundTrips(t, trip, scale) })
			if n := len(rows); n == 0 || rows[n-1] != cells {
				rows, scales = append(rows, cells), append(scales, nil)
			}
			scales[len(rows)-1] = append(scales[len(rows)-1], shortDuration(scale))
		}
		for i, cells := range rows {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", shortDuration(trip), strings.Join(scales[i], ", "), cells)
		}
	}
	return b.String()
}

// roundTrips returns how long a client far away takes for calls on windows that a near client keeps
// open, or "error".
func roundTrips(t *testing.T, trip, scale time.Duration) string {
	srv := testkit.InMemory(t, mockserver.WithValueSize(4))
	limiter := func(trip time.Duration) *throttr.RateLimit {
		return testkit.NewRateLimit(testkit.Connect[uint32](t, srv, throttr.Config{Dial: testkit.Far(srv, trip).Dial}).Backend())
	}
	near, far := limiter(0), limiter(trip)
	reason := fmt.Sprintf("the server responds after %v, and a window of %v takes a response within %v",
		trip, scale, min(scale/2, time.Second)/2)
	measure := func(call func() error) string {
		began := time.Now()
		err := call()
		if err != nil {
			require.ErrorContains(t, err, reason)
			return "error"
		}
		return shortDuration(time.Since(began))
	}
	hit := func(l *throttr.RateLimit, key string) error {
		_, err := l.Hit(t.Context(), key, scale, 100)
		return err
	}
	open := func(key string) { require.NoError(t, hit(near, key)) }
	_ = hit(far, "connect")
	open("known")
	_ = hit(far, "known")
	cells := []string{
		measure(func() error { return hit(far, "known") }),
		measure(func() error { return hit(far, "new") }),
	}
	open("set")
	cells = append(cells, measure(func() error {
		n, err := far.Set(t.Context(), "set", scale, 7)
		if err == nil {
			require.EqualValues(t, 7, n)
			n, err := near.Get(t.Context(), "set", scale)
			require.NoError(t, err)
			require.EqualValues(t, 7, n)
		}
		return err
	}))
	open("reset")
	cells = append(cells, measure(func() error {
		err := far.Reset(t.Context(), "reset", scale)
		if err == nil {
			n, err := near.Get(t.Context(), "reset", scale)
			require.NoError(t, err)
			require.Zero(t, n)
		}
		return err
	}))
	return strings.Join(cells, " | ")
}

// shortDuration returns a duration as documents have it.
func shortDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%g s", d.Round(time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%g min", d.Minutes())
	default:
		return fmt.Sprintf("%g h", d.Hours())
	}
}
