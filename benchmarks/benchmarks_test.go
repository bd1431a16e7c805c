package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/load"
)

// serve starts servers that end with the test, without a complaint.
func serve(t *testing.T) *servers {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("needs a real server: apt-get install redis-server (" + err.Error() + ")")
	}
	s, err := startServers(context.WithoutCancel(t.Context())) // which ends before cleaning up
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.stop()) })
	return s
}

// Whatever is fast because it does not limit does not take part.
func TestWhoTakesPartLimitsEachKey(t *testing.T) {
	s := serve(t)
	for _, w := range []workload{hit, embedded} {
		for _, c := range w.contenders {
			subject, err := c.start(t.Context(), job{servers: s, limit: 3})
			require.NoError(t, err)
			for _, key := range []string{"a", "b"} {
				for i := range 6 {
					allowed, err := subject.do(t.Context(), c.name+key)
					require.NoError(t, err, c.name)
					require.Equal(t, i < 3, allowed, "%s: hit %d of %s", c.name, i+1, key)
				}
			}
			subject.stop()
		}
	}
}

func TestWhoCountsTakesPart(t *testing.T) {
	s := serve(t)
	for _, c := range increase.contenders {
		subject, err := c.start(t.Context(), job{servers: s, keys: 300})
		require.NoError(t, err)
		require.NoError(t, subject.touch(t.Context(), newKeys(300), 7), c.name)
		subject.stop()
	}
}

func TestTurnsAreMeasured(t *testing.T) {
	s := serve(t)
	p := plan{duration: 100 * time.Millisecond}
	r := &results{plan: p, loads: map[id][]load.Result{}}
	for _, w := range []workload{increase, hit, embedded} {
		for range 2 {
			require.NoError(t, r.compare(t.Context(), s, w, 10, 2))
		}
		for _, c := range w.contenders {
			all := r.each(id{w.name, c.name, 10, 2}, perSecond)
			require.Len(t, all, 2)
			require.Positive(t, all[0]+all[1], c.name)
		}
	}
}

// invented returns results in which nobody has been measured, but everybody has figures.
func invented(perSecond func(id, int) float64) *results {
	r := &results{plan: full, loads: map[id][]load.Result{}, perKey: map[string]float64{}, ratios: map[string][]float64{}}
	r.versions = []string{"a machine"}
	set := func(i id) {
		for round := range 3 {
			r.loads[i] = append(r.loads[i], load.Result{
				PerSecond: perSecond(i, round), P50: time.Microsecond, P99: 12345 * time.Nanosecond, CPUPerOperation: 1500, AllocsPerOperation: 0.004,
			})
		}
	}
	for _, n := range full.goroutines {
		for _, w := range []workload{increase, hit} {
			for _, c := range w.contenders {
				set(id{w.name, c.name, fewKeys, n})
				set(id{w.name, c.name, 1, n})
			}
		}
		for _, w := range []string{"increase", "hit", "query"} {
			for _, who := range []string{benched, raw, benchedSlow, rawSlow} {
				set(id{w, who, fewKeys, n})
			}
		}
	}
	for _, c := range embedded.contenders {
		r.perKey[c.name] = 105.4
		set(id{embedded.name, c.name, 1, 1})
		set(id{embedded.name, c.name, manyKeys, 2})
		for _, n := range full.windows {
			set(id{embedded.name, c.name, n, 1})
		}
	}
	for _, b := range benchmarks {
		r.ratios[b.pkg+" "+b.name] = []float64{1, 1.25, 1.5}
	}
	return r
}

func TestTheReportTellsWhatHolds(t *testing.T) {
	r := invented(func(i id, round int) float64 {
		n := 1000 * float64(round+1)
		if i.keys == 1 && i.goroutines > 1 {
			n *= 20 + float64(round) // 20, 21, 22
		}
		return n
	})
	require.NoError(t, r.unmeasured())
	var b bytes.Buffer
	r.report(&b)
	for _, row := range []string{
		"| `hit`, 1 key, 64 goroutines ÷ 1 goroutine: throughput | ≥ 20 | 21.00 (20.00–22.00) | yes |",
		"| `hit`, 1000 keys, 64 goroutines ÷ redis_rate: throughput | ≥ 2.5 | 1.00 | **no** |",
		"| `hit`, 64 goroutines: allocations per operation | ≤ 0 | 0.00 | yes |",
		"| `memory`, bytes per key, of 1000000 keys of 16 bytes, the key included | ≤ 105 | 105 | **no** |",
		"| `RateLimit` on `memory`, ns per hit, 1000 keys, 1 goroutine |  | 500000 (333333–1000000) |  |",
		"| codec, QUERY decoded ÷ by hand: time | ≤ 1.5 | 1.25 (1.00–1.50) | yes |",
		"| redis_rate | 512 | 2,000 | 1µs | 12.3µs | 1.5µs | 0.00 |",
		"| RateLimit on throttr/memory | 2,000 | 2,000 | 0.00 | 105 |",
		"- a machine",
	} {
		require.Contains(t, b.String(), row+"\n")
	}
	for name := range r.chartsOf(t) {
		require.Contains(t, b.String(), "("+name+")", "the chart is shown")
	}
	require.NotRegexp(t, `NaN|Inf|%!`, b.String())
}

func TestWhatWasNotMeasuredIsAnError(t *testing.T) {
	for _, gone := range []id{{"increase", raw, fewKeys, 64}, {embedded.name, goLimiter.name, 1, 1}} {
		r := invented(func(id, int) float64 { return 1 })
		delete(r.loads, gone)
		require.ErrorContains(t, r.unmeasured(), "not measured: ")
	}
	r := invented(func(i id, _ int) float64 { return float64(i.goroutines - 1) })
	require.ErrorContains(t, r.unmeasured(), "not measured: `increase`, 1 goroutine ÷ raw", "nothing was done in time")
}

// chartsOf returns the charts.
func (r *results) chartsOf(t *testing.T) map[string][]byte {
	t.Helper()
	charts, err := r.charts()
	require.NoError(t, err)
	return charts
}

func TestChartsShowWhoWasMeasured(t *testing.T) {
	r := invented(func(i id, _ int) float64 { return float64(i.goroutines) })
	charts := r.chartsOf(t)
	require.Len(t, charts, 4)
	for name, svg := range charts {
		d := xml.NewDecoder(bytes.NewReader(svg))
		text := ""
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
			if data, ok := token.(xml.CharData); ok {
				text += string(data)
			}
		}
		for _, l := range lines {
			workload := regexp.MustCompile(`(hit|increase)-`).FindStringSubmatch(name)[1]
			_, measured := r.loads[id{workload, l.who, fewKeys, 64}]
			require.Equal(t, measured, bytes.Contains([]byte(text), []byte(l.who)), "%s: %s", name, l.who)
		}
	}
}

func TestKeysAreOfOneLengthAndPickedEvenly(t *testing.T) {
	all := newKeys(10)
	require.Equal(t, 10, all.count())
	require.Equal(t, "user:00000000009", all.at(9))
	var picked [10]int
	for i := range uint64(10_000) {
		picked[pick(10, 3, i)]++
	}
	for _, n := range picked {
		require.InDelta(t, 1000, n, 150)
	}
	require.Zero(t, pick(1, 3, 5))
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for f, want := range map[float64]string{
		math.NaN(): "-", 0: "0", 7.6: "8", 999: "999", 1234: "1,230", 12345678: "12,300,000", 999999: "1,000,000",
	} {
		require.Equal(t, want, count(f))
	}
	for f, want := range map[float64]string{math.NaN(): "-", 12: "12ns", 1234: "1.23µs", 123456789: "123ms", 12e9: "12s"} {
		require.Equal(t, want, span(f))
	}
	require.True(t, math.IsNaN(median(nil)))
	require.Equal(t, "[2 2.5]", fmt.Sprint([]float64{median([]float64{3, 2, 1}), median([]float64{4, 1, 3, 2})}))
}

func TestTheRatioOfABenchmarkIsFound(t *testing.T) {
	ratio, err := reportedRatio([]byte("goos: linux\nBenchmarkEncodeQuery-2  77731  4729 ns/op  5.268 codec-ns  1.548 ratio  0 B/op\nPASS\n"))
	require.NoError(t, err)
	require.InDelta(t, 1.548, ratio, 0)
	_, err = reportedRatio([]byte("PASS\nok  \t0.001s\n"))
	require.ErrorContains(t, err, "there is no ratio: PASS")
}
