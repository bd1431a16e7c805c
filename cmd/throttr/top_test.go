package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// topOf returns a top of a backend, with these flags of a limit.
func topOf(t *testing.T, b throttr.Backend, line string) *top {
	return &top{limit: parsed(t, line), b: b, every: 2 * time.Second, shown: 3}
}

// counter counts the calls of a backend. It lists each count twice.
type countingBackend struct {
	*memory.Backend
	lists int
	takes time.Duration // of a list
	err   error
}

func (b *countingBackend) List(ctx context.Context, keys ...string) iter.Seq2[throttr.Listed, error] {
	b.lists++
	time.Sleep(b.takes)
	return func(yield func(throttr.Listed, error) bool) {
		if b.err != nil {
			yield(throttr.Listed{}, b.err)
			return
		}
		for range 2 {
			for l, err := range b.Backend.List(ctx, keys...) {
				if !yield(l, err) {
					return
				}
			}
		}
	}
}

func TestFullestCountsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		defer m.Close()
		b := &countingBackend{Backend: m, takes: 500 * time.Millisecond}
		limiter, ctx := throttr.NewRateLimit(b), t.Context()
		for i := range 100 {
			_, err := limiter.HitN(ctx, fmt.Sprint("k", i), throttr.Limit{Max: 100, Scale: time.Hour}, uint64(i))
			require.NoError(t, err)
		}
		_, err := limiter.HitN(ctx, "small", throttr.Limit{Name: "api", Max: 2, Scale: time.Minute}, 2)
		require.NoError(t, err)
		top := topOf(t, b, "")
		require.NoError(t, top.read(ctx))
		keys := func(n int) (all []string) {
			for _, f := range top.open(n) {
				all = append(all, f.Key+" "+f.rateText())
			}
			return all
		}
		require.Equal(t, []string{"small unknown", "k99 unknown", "k98 unknown"}, keys(3))
		require.Equal(t, 2*101, top.all, "the store lists each twice")

		// Until 20 times as long as a list has passed, only the fullest are read.
		_, err = limiter.HitN(ctx, "k97", throttr.Limit{Max: 100, Scale: time.Hour}, 3)
		require.NoError(t, err)
		for range 4 {
			time.Sleep(2 * time.Second)
			require.NoError(t, top.read(ctx))
		}
		require.Equal(t, 1, b.lists)
		require.Equal(t, []string{"k97 0", "small 0", "k99 0"}, keys(3), "by the rates since the last reading")
		require.InDelta(t, 1./pauses, top.cost(), 0.001)
		require.Contains(t, top.costText(), "202 counts, read in 500ms every 10s; the fullest 6 in 0s every 2s: at most 5.0% of the store's time")
		time.Sleep(2 * time.Second)
		require.NoError(t, top.read(ctx))
		require.Equal(t, 2, b.lists)

		// What is over is not shown, and comes back with its next window.
		time.Sleep(time.Minute)
		require.NoError(t, top.readFullest(ctx))
		require.NotContains(t, strings.Join(keys(6), ","), "small")
		_, err = limiter.HitN(ctx, "small", throttr.Limit{Name: "api", Max: 2, Scale: time.Minute}, 2)
		require.NoError(t, err)
		require.NoError(t, top.readFullest(ctx))
		require.Contains(t, strings.Join(keys(6), ","), "small")
		b.err = errors.New("away")
		time.Sleep(time.Minute)
		require.ErrorIs(t, top.read(ctx), b.err)

		_, err = limiter.HitN(ctx, "small", throttr.Limit{Name: "api", Max: 2, Scale: time.Minute}, 2)
		require.NoError(t, err)
		only := topOf(t, m, "--name api")
		require.NoError(t, only.read(ctx))
		require.Len(t, only.fullest, 1)
		lines := only.lines(5, 40)
		require.Len(t, lines, 4)
		for _, line := range lines {
			require.LessOrEqual(t, len([]rune(line)), 40)
		}
		require.True(t, strings.HasSuffix(lines[3], "…"))
	})
}

// Rates are right for windows of all lengths, longer and shorter than the time between two readings.
func TestRatesOfWindowsThatEndBetweenReadings(t *testing.T) {
	for _, a := range []throttr.Algorithm{throttr.FixedWindow, throttr.AlignedWindow, throttr.SlidingWindow, throttr.SlidingLog} {
		for _, scale := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				defer b.Close()
				limiter, ctx := throttr.NewRateLimit(b), t.Context()
				top := topOf(t, b, "")
				sum, readings := 0.0, 0
				for i := range 4000 { // a hundred a second
					_, err := limiter.Take(ctx, "k", throttr.Limit{Max: 10_000, Scale: scale, Algorithm: a}, 1)
					require.NoError(t, err)
					time.Sleep(10 * time.Millisecond)
					if i%207 == 200 {
						require.NoError(t, top.read(ctx))
						if f := top.open(1); i > 300 && len(f) == 1 && f[0].rate != nil {
							sum += *f[0].rate
							readings++
						}
					}
				}
				want := 100.
				if a.Rolling() && scale > 2*time.Second { // then by how much the count changes: it grows for a scale
					want = 100 * min(scale.Seconds(), 38) / 38
				}
				require.Greater(t, readings, 12)
				require.InDelta(t, want, sum/float64(readings), 12, "%v of %v", a, scale)
			})
		}
	}
}

func TestCountsThatStartAgain(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 10, 0, time.UTC)
	f := followed{Listed: throttr.Listed{Limit: throttr.Limit{Scale: time.Minute, Algorithm: throttr.FixedWindow}}, read: start}
	f.Window = window.Window{Count: 50, Left: 30 * time.Second}
	require.Equal(t, unknown, f.rateText())
	f.update(window.Window{Count: 70, Left: 20 * time.Second}, start.Add(10*time.Second))
	require.Equal(t, "2.0", f.rateText())
	f.update(window.Window{Count: 5, Left: 59 * time.Second}, start.Add(20*time.Second))
	require.Equal(t, "2.0", f.rateText(), "a second of a minute is too short for a rate")
	f.update(window.Window{Count: 300, Left: 30 * time.Second}, start.Add(90*time.Second))
	require.Equal(t, "10", f.rateText(), "300 in the half minute since the window has opened")
	f.update(window.Window{}, start.Add(3*time.Minute))
	f.update(window.Window{Count: 1, Left: 59 * time.Second}, start.Add(5*time.Minute))
	require.Equal(t, "10", f.rateText())
}

func TestTopPrintsViews(t *testing.T) {
	forStores(t, func(t *testing.T, s shell, redis bool) {
		s.does("take --scale 1h --limit 4 -n 3 a")
		s.does("take --scale 1h --limit 4 -n 1 b")
		require.Regexp(t, `(?m)^\d\d:\d\d:\d\d  2 counts, read in .* at most .*% of the store's time

key name count max used in algorithm ends in change/s
a - 3 4 75% 1h fixed-window 1h 0
b - 1 4 25% 1h fixed-window 1h 0
`, strings.Replace(plainly(s.does("top --once --every 100ms --limit 4")), " ", "  ", 1))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var printed, errs bytes.Buffer
		require.Zero(t, run(ctx, strings.Split("top --json --every 200ms -n 1 --store "+s.store, " "), nil, &printed, &errs), errs.String())
		lines := strings.Split(strings.TrimSpace(printed.String()), "\n")
		require.Greater(t, len(lines), 3)
		for i, line := range lines {
			var v view
			require.NoError(t, json.Unmarshal([]byte(line), &v))
			require.Equal(t, 2, v.Counts)
			require.Len(t, v.Top, 1)
			require.Equal(t, i > 0, v.Top[0].Rate != nil)
			require.Equal(t, redis, v.Top[0].Used != nil, "a server does not know Max")
		}
	})
}
