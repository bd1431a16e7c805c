package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// TestMain is a process that hits a shared key if it has an assignment.
func TestMain(m *testing.M) {
	if os.Getenv(assignmentVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// serve starts servers that end with the test.
func serve(t *testing.T) *servers {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is needed, such as from apt-get install redis-server: " + err.Error())
	}
	s, err := startServers(context.WithoutCancel(t.Context())) // the context of t ends before Cleanup
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.stop()) })
	return s
}

func TestContendersLimitEachKey(t *testing.T) {
	s := serve(t)
	for _, w := range []workload{hit, algorithms, middlewares, cold} {
		for _, c := range w.contenders {
			instance, err := c.start(t.Context(), setup{servers: s, limit: 3, scale: scale})
			require.NoError(t, err)
			for _, key := range []string{"a", "b"} {
				if instance.do == nil || c.name == emptyMiddleware.name {
					continue // raw frames limit nothing
				}
				for i := range 6 {
					allowed, err := instance.do(t.Context(), w.name+c.name+key)
					require.NoError(t, err, c.name)
					require.Equal(t, i < 3, allowed, "%s: hit %d of %s", c.name, i+1, key)
				}
			}
			instance.stop()
		}
	}
}

func TestContendersIncreaseEachKey(t *testing.T) {
	s := serve(t)
	for _, c := range increase.contenders {
		instance, err := c.start(t.Context(), setup{servers: s, keys: 300})
		require.NoError(t, err)
		require.NoError(t, instance.touch(t.Context(), keySet(300).Keys(), 7), c.name)
		instance.stop()
	}
}

// invented returns results with figures that were not measured.
func invented(perSecond func(m measurement, round int) float64) *results {
	r := newResults(full)
	r.versions = []string{"a machine"}
	set := func(m measurement) {
		for round := range 3 {
			r.loads[m] = append(r.loads[m], load.Result{
				PerSecond: perSecond(m, round), P50: time.Microsecond, P99: 12345 * time.Nanosecond, P999: time.Millisecond, CPUPerOperation: 1500, AllocsPerOperation: 0.004,
			})
		}
	}
	for _, keys := range full.sparseKeys {
		m := measurement{sparse.name, throttrSparse.name, keys, sparseGoroutines}
		r.windows[m] = slices.Repeat([]windows{{hits: 20, opened: 10, requests: 100, creations: 10}}, 3)
		for _, c := range sparse.contenders {
			m := measurement{sparse.name, c.name, keys, sparseGoroutines}
			set(m)
			r.redisCPU[m] = []float64{9000}
		}
	}
	set(measurement{query.name, ours, fewKeys, bucketGoroutines})
	for _, c := range bucket.contenders {
		m := measurement{bucket.name, c.name, fewKeys, bucketGoroutines}
		set(m)
		r.redisCPU[m] = []float64{9000, 9000, 9000}
	}
	for _, n := range full.goroutines {
		for _, w := range []workload{increase, hit} {
			for _, c := range w.contenders {
				set(measurement{w.name, c.name, fewKeys, n})
				set(measurement{w.name, c.name, 1, n})
			}
		}
	}
	for _, c := range cold.contenders {
		set(measurement{cold.name, c.name, coldKeys, coldGoroutines})
	}
	for _, c := range algorithms.contenders {
		r.perKey[c.name] = 105.4
		for _, at := range algorithmLoads {
			set(measurement{algorithms.name, c.name, at.keys, at.goroutines})
		}
		for _, n := range full.windows {
			set(measurement{algorithms.name, c.name, n, 1})
		}
	}
	for _, c := range middlewares.contenders {
		for _, at := range middlewareLoads {
			set(measurement{middlewares.name, c.name, at.keys, at.goroutines})
		}
	}
	for _, c := range redisTakes.contenders {
		for _, n := range redisTakesLoads {
			for _, keys := range []int{1, fewKeys} {
				m := measurement{redisTakes.name, c.name, keys, n}
				set(m)
				r.redisCPU[m] = []float64{9000, 9000, 9000}
			}
		}
	}
	for _, k := range sharings {
		for _, c := range sharers {
			m := c.measurement(k)
			set(m)
			r.redisCPU[m] = []float64{9000, 9000, 9000}
			for round := range 3 {
				r.shared[m] = append(r.shared[m], sharedFigures{requests: 1.234, allowed: 19.5 + float64(round)/2, used: 0.9876, over: float64(round), windows: 5, hits: 1000})
			}
		}
	}
	for _, b := range codeBenchmarks {
		r.ratios[b.pkg+" "+b.name] = []float64{1, 1.25, 1.5}
	}
	return r
}

func TestReportContainsFiguresAndClaims(t *testing.T) {
	r := invented(func(m measurement, round int) float64 {
		n := 1000 * float64(round+1)
		if m.keys == 1 && m.goroutines > 1 {
			n *= 20 + float64(round) // 20, 21, 22
		}
		return n
	})
	require.NoError(t, r.missing())
	var b bytes.Buffer
	r.report(&b)
	for _, row := range []string{
		"| `hit`, 1 key, 64 goroutines ÷ 1 goroutine: throughput | ≥ 20 | 21.00 (20.00–22.00) | yes |",
		"| `hit`, 1000 keys, 64 goroutines ÷ redis_rate: throughput | ≥ 2.5 | 1.00 | **no** |",
		"| `hit`, 64 goroutines: allocations per operation | ≤ 0 | 0.00 | yes |",
		"| `memory`, bytes per key, of 1000000 keys of 16 bytes, the key included | ≤ 95 | 105 | **no** |",
		"| `RateLimit` on `memory`, ns per hit, 1000 keys, 1 goroutine |  | 500000 (333333–1000000) |  |",
		"| codec, QUERY decoded ÷ by hand: time | ≤ 1.5 | 1.25 (1.00–1.50) | yes |",
		"| throttr, old server | 5000 | 2,000 | 1µs | 12.3µs | 2.00 | 10.00 | 8.00 | 1.00 | 200µs | 100µs |",
		"| redis_rate | 20000 | 2,000 | 1µs | 12.3µs | - | - | - | - | - | 9µs |",
		"| `sparse`, 5000 keys, old server: INSERTs per opened window | ≤ 0 | 1.00 | **no** |",
		"| `sparse`, 5000 keys, old server: requests to open a window | ≤ 8 | 8.00 | yes |",
		"| redis_rate | 512 | 2,000 | 1µs | 12.3µs | 1.5µs | 0.00 |",
		"| `memory`, token bucket, 1 key, 1 goroutine ÷ the fastest of other packages: time | ≤ 1 | 1.00 | yes |",
		"| `memory`, token bucket, 100000 keys, 2 goroutines ÷ fixed window: time | ≤ 1 | 1.00 | yes |",
		"| `memory`, sliding log: allocations per hit | ≤ 0 | 0.00 | yes |",
		"| `memory`, fixed window, 1 key, 2 goroutines ÷ go-limiter: throughput | ≥ 3 | 1.00 | **no** |",
		"| sliding window | 500000 ns | 47619 ns | 500000 ns | 1000000 ns | 0.00 | 105 |",
		"| leases on Redis, saturated: requests per 1,000 allowed hits | ≤ 20 | 20.00 (19.50–20.50) | yes |",
		"| `hit`, 20000 keys, 64 goroutines, with leases ÷ without: throughput | ≥ 0.97 | 1.00 | yes |",
		"| leases on throttr, 1.2 times the limit: used part of the limit | ≥ 0.99 | 0.99 | **no** |",
		"| leases on throttr: hits over the limit, in the worst of all windows | ≤ 0 | 2.00 | **no** |",
		"| leases on Redis | 42,000 | 1µs | 12.3µs | 1ms | 1.5µs | 9µs | 1.23 | 20.00 | 98.8 % | 2 |",
	} {
		require.Contains(t, b.String(), row+"\n")
	}
	require.NotRegexp(t, `NaN|Inf|%!`, b.String())
	b.Reset()
	r.summary(&b)
	for _, row := range []string{
		"| redis_rate | Redis | 2,000 | 12.3µs | 1.5µs | 2,000 | 42,000 |",
		"| sliding window | 500000 ns | 47619 ns | 500000 ns | 1000000 ns | 0.00 | 105 |",
		"| leases on Redis | 42,000 | 12.3µs | 1.23 | 2 |",
		"| redis_rate | 2,000 | 12.3µs | 9µs |",
		"- a machine",
	} {
		require.Contains(t, b.String(), row+"\n")
	}
	for name := range r.chartsOf(t) {
		require.Contains(t, b.String(), "("+name+")", "the summary contains the chart")
	}
	require.NotRegexp(t, `NaN|Inf|%!`, b.String())
	require.Less(t, len(strings.Fields(b.String())), 750)
}

func TestAlgorithmsAreComparedWithTheFastestInTheSameRound(t *testing.T) {
	r := newResults(plan{})
	set := func(c contender, perSecond ...float64) {
		for _, n := range perSecond {
			m := measurement{algorithms.name, c.name, 1, 1}
			r.loads[m] = append(r.loads[m], load.Result{PerSecond: n})
		}
	}
	for _, c := range otherAlgorithms {
		set(c, 1, 1, 1)
	}
	set(tokenBucket, 4, 4, 4)
	r.loads[measurement{algorithms.name, ulule.name, 1, 1}][1].PerSecond = 8
	r.loads[measurement{algorithms.name, throttledGCRA.name, 1, 1}][2].PerSecond = 2
	require.Equal(t, []float64{0.25, 2, 0.5}, r.timeToFastest(measurement{algorithms.name, tokenBucket.name, 1, 1}))
	delete(r.loads, measurement{algorithms.name, xTimeRate.name, 1, 1})
	require.Empty(t, r.timeToFastest(measurement{algorithms.name, tokenBucket.name, 1, 1}))
}

func TestMissingMeasurementIsAnError(t *testing.T) {
	for _, gone := range []measurement{{"increase", raw, fewKeys, 64}, {algorithms.name, goLimiter.name, 1, 1}, {algorithms.name, ulule.name, 1, 2}} {
		r := invented(func(measurement, int) float64 { return 1 })
		delete(r.loads, gone)
		require.ErrorContains(t, r.missing(), "not measured: ")
	}
	r := invented(func(m measurement, _ int) float64 { return float64(m.goroutines - 1) })
	require.ErrorContains(t, r.missing(), "not measured: `increase`, 1 goroutine ÷ raw", "no operation ended within the duration")
}

// chartsOf returns the charts.
func (r *results) chartsOf(t *testing.T) map[string][]byte {
	t.Helper()
	charts, err := r.charts()
	require.NoError(t, err)
	return charts
}

func TestChartsContainMeasuredContenders(t *testing.T) {
	r := invented(func(m measurement, _ int) float64 { return float64(m.goroutines) })
	charts := r.chartsOf(t)
	require.Len(t, charts, 2)
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
			workload := regexp.MustCompile(`(hit)-`).FindStringSubmatch(name)[1]
			_, measured := r.loads[measurement{workload, l.contender, fewKeys, 64}]
			require.Equal(t, measured, bytes.Contains([]byte(text), []byte(l.contender)), "%s: %s", name, l.contender)
		}
	}
}

func TestKeysHave16Bytes(t *testing.T) {
	require.Equal(t, "key:000000000009", keySet(10).Keys().At(9))
	require.Len(t, keySet(1).Key(0), 16)
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for f, want := range map[float64]string{
		math.NaN(): "-", 0: "0", 7.6: "8", 999: "999", 1234: "1,230", 12345678: "12,300,000", 999999: "1,000,000",
	} {
		require.Equal(t, want, count(f))
	}
	for f, want := range map[float64]string{math.NaN(): "-", 12: "12ns", 1234: "1.23µs", 123456789: "123ms", 12e9: "12s"} {
		require.Equal(t, want, duration(f))
	}
}

func TestRatioOfBenchmarkIsParsed(t *testing.T) {
	ratio, err := reportedRatio([]byte("goos: linux\nBenchmarkEncodeQuery-2  77731  4729 ns/op  5.268 codec-ns  1.548 ratio  0 B/op\nPASS\n"))
	require.NoError(t, err)
	require.InDelta(t, 1.548, ratio, 0)
	_, err = reportedRatio([]byte("PASS\nok  \t0.001s\n"))
	require.ErrorContains(t, err, "there is no ratio: PASS")
}
