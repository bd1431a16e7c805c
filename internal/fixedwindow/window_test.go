package fixedwindow

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
)

// nameIn returns the name of a record.
func nameIn(key string, scale time.Duration, bucket int64) string {
	e := entry[uint16]{}
	e.prefix, e.suffix = recordName(key, timing{scale: scale})
	return string(e.appendName(nil, bucket))
}

func TestRecordNamesAreAsDocumented(t *testing.T) {
	long := strings.Repeat("k", maxRecordKey+1)
	sum := sha256.Sum256([]byte(long))
	for want, got := range map[string]string{
		"rl:1m0s:31556736:user:42":            nameIn("user:42", time.Minute, 31556736),
		"rl:1.5s:-1:":                         nameIn("", 1500*time.Millisecond, -1),
		"rl:1ns:9223372036854775807:\x00\xff": nameIn("\x00\xff", 1, math.MaxInt64),
		"rl:1h0m0s:7:" + long[1:]:             nameIn(long[1:], time.Hour, 7),
		"rh:1h0m0s:7:" + base64.RawURLEncoding.EncodeToString(sum[:]): nameIn(long, time.Hour, 7),
	} {
		require.Equal(t, want, got)
	}
}

func TestRecordNamesFit(t *testing.T) {
	for _, n := range []int{0, 1, 79, 80, 81, 255, 256, 10_000, 1 << 20} {
		name := nameIn(strings.Repeat("k", n), math.MaxInt64, math.MinInt64)
		require.LessOrEqual(t, len(name), 129, "a key of %d bytes", n)
	}
}

func TestRecordNamesAreUnique(t *testing.T) {
	keys := []string{"", ":", "1", "1:", ":1", "1:1", "1s:1", "rl:1s:1:", "a", "b", "\x00"}
	for n := maxRecordKey - 1; n <= maxRecordKey+2; n++ {
		k := strings.Repeat("k", n)
		sum := sha256.Sum256([]byte(k))
		keys = append(keys, k, k[1:]+"l", base64.RawURLEncoding.EncodeToString(sum[:]))
	}
	seen := map[string][3]any{}
	for _, key := range keys {
		for _, scale := range []time.Duration{1, 10, time.Microsecond, time.Second, 10 * time.Second, time.Minute, time.Hour, math.MaxInt64} {
			for _, bucket := range []int64{math.MinInt64, -11, -1, 0, 1, 11, 111, math.MaxInt64} {
				name := nameIn(key, scale, bucket)
				is := [3]any{key, scale, bucket}
				if was, ok := seen[name]; ok && was != is {
					t.Fatalf("%q is the name of %v and of %v", name, was, is)
				}
				seen[name] = is
			}
		}
	}
}

func TestWhatIsKnownOfAnEndNarrows(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, c := range []struct {
		name           string
		now, old, want [2]int
	}{
		{"within", [2]int{3, 5}, [2]int{1, 9}, [2]int{3, 5}},
		{"around", [2]int{1, 9}, [2]int{3, 5}, [2]int{3, 5}},
		{"earlier", [2]int{1, 4}, [2]int{3, 5}, [2]int{3, 4}},
		{"later", [2]int{4, 9}, [2]int{3, 5}, [2]int{4, 5}},
		{"a point", [2]int{5, 9}, [2]int{3, 5}, [2]int{5, 5}},
		{"another window", [2]int{6, 9}, [2]int{3, 5}, [2]int{6, 9}},
		{"another window before", [2]int{0, 2}, [2]int{3, 5}, [2]int{0, 2}},
	} {
		w := state{earliestEnd: at(c.now[0]), latestEnd: at(c.now[1])}
		w.narrow(state{earliestEnd: at(c.old[0]), latestEnd: at(c.old[1])})
		require.Equal(t, state{earliestEnd: at(c.want[0]), latestEnd: at(c.want[1])}, w, c.name)
	}
}

func TestAWindowIsLiveWhileTheMarginIsLeft(t *testing.T) {
	tm := timing{scale: 10 * time.Second, unit: 4, span: 10, margin: 30}
	require.True(t, observation{found: true, left: 39}.live(tm))
	require.True(t, observation{found: true, left: 30}.live(tm))
	require.False(t, observation{found: true, left: 29}.live(tm))
	require.False(t, observation{found: true}.live(tm))
	require.False(t, observation{left: 39}.live(tm))
	lo, hi := observation{left: 30, from: time.Unix(100, 0), to: time.Unix(101, 0)}.end(tm)
	require.Equal(t, [2]time.Time{time.Unix(100, 0), time.Unix(102, 0)}, [2]time.Time{lo, hi})
}

func TestAResultNeverEndsEarlyNorLate(t *testing.T) {
	tm := timing{scale: 10 * time.Second, unit: 4, span: 10, margin: 30}
	now := time.Unix(100, 0)
	for end, left := range map[time.Duration]time.Duration{
		-time.Second:     1,
		0:                1,
		time.Second:      time.Second,
		10 * time.Second: 10 * time.Second,
		11 * time.Second: 10 * time.Second,
	} {
		w := state{earliestEnd: now, latestEnd: now.Add(end)}.result(tm, 7, now)
		require.Equal(t, coalesce.Result{Count: 7, ExpiresAt: now.Add(left), Left: left}, w, "%v", end)
	}
}

func TestTheOldestRecordIsTheWindow(t *testing.T) {
	fine := timing{scale: time.Second, unit: 1, span: 1e9, margin: 30e9}
	coarse := timing{scale: time.Second, unit: 4, span: 1, margin: 30}
	from := time.Unix(100, 0)
	see := func(took time.Duration, lefts ...uint64) (live []observation) {
		for i, left := range lefts {
			live = append(live, observation{bucket: int64(i), found: true, left: left, from: from, to: from.Add(took)})
		}
		return live
	}
	s, tie := oldest(see(1000, 30e9+5000, 30e9, 30e9+7000), fine)
	require.Equal(t, int64(1), s.bucket)
	require.False(t, tie)
	_, tie = oldest(see(5000, 30e9+5000, 30e9, 30e9+7000), fine)
	require.True(t, tie, "the look took as long as they are apart")
	_, tie = oldest(see(0, 31, 30), coarse)
	require.True(t, tie, "a unit may have ended between the two")
	s, tie = oldest(see(0, 30, 40, 50), coarse)
	require.Equal(t, int64(0), s.bucket)
	require.False(t, tie)
	_, tie = oldest(see(0, 30), coarse)
	require.False(t, tie)

	live := see(0, 31, 30, 31, 40)
	live[0].count, live[1].count, live[2].count, live[3].count = 3, 2, 9, 50
	require.Equal(t, int64(2), busiest(live, 30).bucket)
}
