package throttr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

func TestKeysOfSeveralPartsAreNeverTheSame(t *testing.T) {
	require.Equal(t, "user:42", throttr.Key("user", "42"))
	require.Equal(t, `user:42:ip:2001\:db8\:\:1`, throttr.Key("user", "42", "ip", "2001:db8::1"))
	parts := []string{"", "a", ":", `\`, `\:`, `:\`, "a:", ":a", "\x00", "\xff"}
	seen := map[string][]string{}
	var all func(prefix []string, more int)
	all = func(prefix []string, more int) {
		if len(prefix) > 0 {
			key := throttr.Key(prefix...)
			if other, ok := seen[key]; ok {
				t.Fatalf("%q has the key of %q", prefix, other)
			}
			seen[key] = prefix
		}
		if more > 0 {
			for _, p := range parts {
				all(append(prefix[:len(prefix):len(prefix)], p), more-1)
			}
		}
	}
	all(nil, 4)
	require.Len(t, seen, 10+100+1000+10000)
	require.Zero(t, testing.AllocsPerRun(100, func() { throttr.Key("user") }))
}
