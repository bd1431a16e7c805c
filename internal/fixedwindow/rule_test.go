package fixedwindow

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

func TestRuleKnowsNamesOfRecords(t *testing.T) {
	var r Rule[uint16]
	now := time.Unix(1_800_000_000, 0)
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned} {
		for _, key := range []string{"", "k", "a:b:c", strings.Repeat("x", 80), strings.Repeat("x", 200)} {
			for _, scale := range []time.Duration{time.Second, time.Minute, 1500 * time.Millisecond} {
				timing, ok := timingFor(a, scale, math.MaxUint16)
				require.True(t, ok)
				prefix, suffix := recordName(key, timing)
				name := func(bucket int64) []byte { return fmt.Append(nil, prefix, bucket, suffix) }
				got, bucket, ok := r.parse(name(-17))
				require.True(t, ok)
				require.Equal(t, timing, got)
				require.EqualValues(t, -17, bucket)

				present := timing.bucket(now)
				slack := min(5*time.Second, timing.duration(timing.margin)/4)
				before := now.Add(-slack)
				for bucket, want := range map[int64]bool{
					present + 2: false, present: false, timing.bucket(before) - 1: false, timing.bucket(before) - 2: true,
				} {
					removable, ours := r.Inspect(name(bucket), now)
					require.True(t, ours)
					require.Equal(t, want, removable, bucket)
				}
			}
		}
	}
}

func TestRuleDoesNotKnowOtherNames(t *testing.T) {
	var r Rule[uint16]
	for _, name := range []string{
		"", "k", "rl", "rl:", "rl:1s", "rl:1s:7", "rl:1s:x:k", "rl:1s:07:k", "rl:1s:+7:k", "rl:1s:-0:k", "rl:60s:7:k", "rl:1ns:7:k",
		"rl:0s:7:k", "rl:-1s:7:k", "xl:1s:7:k", "rl:1s:9223372036854775807:k", "rl:1s:-9223372036854775808:k", "rh:1s:7:short",
		"rl:1s:7:" + strings.Repeat("x", 81), "rl:1000000h0m0s:7:k", "throttr:sweeper",
	} {
		removable, ours := r.Inspect([]byte(name), time.Now())
		require.False(t, ours, name)
		require.False(t, removable, name)
		require.Zero(t, r.Decide([]byte(name), sweep.Observation{}, time.Now()), name)
	}
}

func TestRuleDecidesByTTL(t *testing.T) {
	var r Rule[uint16]
	now := time.Unix(1_800_000_000, 0)
	timing, _ := timingFor(window.PerKey, time.Minute, math.MaxUint16)
	name := func(bucket int64) []byte { return fmt.Appendf(nil, "rl:1m0s:%d:k", bucket) }
	used, unusable := name(timing.bucket(now)), name(timing.bucket(now)-10)
	decide := func(name []byte, left uint64) sweep.Action {
		d := r.Decide(name, sweep.Observation{Unit: timing.unit, Left: left}, now)
		if d.Action == sweep.Prolong {
			require.Positive(t, d.Increase)
			require.Less(t, left+2*d.Increase, timing.margin, "two at once do not make it an active window")
		}
		return d.Action
	}
	require.Equal(t, sweep.Leave, decide(unusable, timing.span+timing.margin+1), "no such record")
	require.Equal(t, sweep.Leave, decide(unusable, timing.margin), "active")
	require.Equal(t, sweep.Remove, decide(unusable, timing.margin-1))
	require.Equal(t, sweep.Remove, decide(unusable, 0))
	require.Equal(t, sweep.Leave, decide(used, timing.margin))
	require.Equal(t, sweep.Keep, decide(used, timing.margin-1), "its client may be about to remove it")
	require.Equal(t, sweep.Prolong, decide(used, timing.margin/4))
	require.Equal(t, sweep.Prolong, decide(used, 0))
	require.Zero(t, r.Decide(used, sweep.Observation{Unit: timing.unit + 1}, now), "another unit")
}
