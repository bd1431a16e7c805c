package fixedwindow

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nameIn returns the name of a record.
func nameIn(key string, scale time.Duration, bucket int64) string {
	e := entry[uint16]{}
	e.prefix, e.suffix = recordName(key, timing{scale: scale})
	return string(e.appendName(nil, bucket))
}

//evidence:limits The names of records are those of docs/rate-limiting.md
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

//evidence:limits No two windows share a record
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
