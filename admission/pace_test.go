package admission_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

var limitItem = regexp.MustCompile(`"[^"]*";r=(\d+);t=(\d+)`)

// pauseOf returns for how long a client waits by the RateLimit field: if nothing is left of a limit, until all of it is
// there again.
func pauseOf(t *testing.T, field string) (pause time.Duration) {
	t.Helper()
	items := limitItem.FindAllStringSubmatch(field, -1)
	require.NotEmpty(t, items, field)
	for _, i := range items {
		seconds, err := strconv.Atoi(i[2])
		require.NoError(t, err)
		if i[1] == "0" {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
	}
	return pause
}

// A client that paces itself by the header fields alone is never denied, also while a fallback decides by the share of a
// process.
func TestAClientThatGoesByTheFieldsIsNeverDenied(t *testing.T) {
	limit := func(a throttr.Algorithm, name string, most uint64, scale time.Duration, burst uint64) throttr.Limit {
		if a != throttr.TokenBucket {
			burst = 0
		}
		return throttr.Limit{Name: name, Max: most, Scale: scale, Burst: burst, Algorithm: a}
	}
	for _, a := range limits.Algorithms {
		for _, b := range append([]throttr.Algorithm{0}, limits.Algorithms...) {
			all := []throttr.Limit{limit(a, "a", 3, 1700*time.Millisecond, 8)}
			if b != 0 {
				all = append(all, limit(b, "b", 7, 7*time.Second, 2))
			}
			t.Run(fmt.Sprint(a, " ", b), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
					defer store.Close()
					cfg := admission.Config{Limits: all}
					shared := []throttr.Option{throttr.WithFallback(store), throttr.WithProcesses(2)}
					for _, gate := range []*admission.Gate{newGateOn(t, store, cfg), newGateOn(t, testkit.Broken(store, errDown), cfg, shared...)} {
						time.Sleep(time.Hour + 1234567*time.Microsecond)
						begun := time.Now()
						for range 200 {
							d := gate.Admit(t.Context(), request("k"))
							require.True(t, d.Allowed, "%s after %v", d.LimitField(), time.Since(begun))
							time.Sleep(pauseOf(t, d.LimitField()) + 10*time.Millisecond)
						}
						require.Less(t, time.Since(begun), 45*time.Minute)
					}
				})
			})
		}
	}
}

// While a fallback decides, all fields speak of the share of a process.
func TestThePolicyIsThatOfTheShareThatDecides(t *testing.T) {
	for _, hits := range []bool{false, true} {
		cfg := admission.Config{CountRefusals: hits, Limits: []throttr.Limit{
			{Name: "hour", Max: 100, Scale: time.Hour}, {Name: "small", Max: 1, Scale: 2 * time.Hour},
			{Name: "bucket", Max: 10, Scale: 24 * time.Hour, Burst: 50, Algorithm: throttr.TokenBucket},
		}}
		gate := newGateOn(t, testkit.Broken(memory.New(), errDown), cfg, throttr.WithFallback(memory.New()), throttr.WithProcesses(2))
		d := gate.Admit(t.Context(), request("k"))
		require.Equal(t, `"hour";q=50;w=3600, "small";q=1;w=7200, "bucket";q=25;w=432000`, d.PolicyField())
		require.Regexp(t, `^"hour";r=49;t=3600, "small";r=0;t=7200, "bucket";r=24;t=`, d.LimitField())
	}
	d := newGateOn(t, testkit.Broken(memory.New(), errDown), admission.Config{}, throttr.WithPolicy(throttr.AllowHits)).Admit(t.Context(), request("k"))
	require.Equal(t, `"minute";q=3;w=60`, d.PolicyField())
}

// With one limit in the fields, as in those of X-RateLimit, a client that waits for its end is not denied by another one
// either: of those of which as much remains, it is the one that ends later.
func TestAClientThatGoesByTheStrictestIsNotDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, admission.Config{Limits: []throttr.Limit{
			{Name: "minute", Max: 1, Scale: time.Minute}, {Name: "hour", Max: 1, Scale: time.Hour, Algorithm: throttr.AlignedWindow},
		}})
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - 10*time.Second))) // the hour ends first
		for _, want := range []string{"minute", "hour"} {
			d := gate.Admit(t.Context(), request("k"))
			require.True(t, d.Allowed)
			require.Equal(t, want, d.Strictest.Name)
			time.Sleep(d.Strictest.Left())
		}
	})
}

// The policy is the same whether a limit or the RateLimit says that it is a token bucket, also of a limit that was not
// asked for.
func TestThePolicyIsThatOfTheAlgorithmOfTheRateLimit(t *testing.T) {
	gate := newGate(t, admission.Config{CountRefusals: true, Limits: []throttr.Limit{
		{Name: "none", Scale: time.Millisecond}, {Name: "bucket", Max: 10, Scale: time.Second, Burst: 50},
	}}, throttr.WithAlgorithm(throttr.TokenBucket))
	require.Equal(t, `"none";q=0;w=1, "bucket";q=50;w=5`, gate.Admit(t.Context(), request("k")).PolicyField())
}
