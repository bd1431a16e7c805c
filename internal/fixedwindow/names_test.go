package fixedwindow

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// namesOf returns the names of the slots of a key, for a limit without a name.
func namesOf(t testing.TB, key string, scale time.Duration, size int) [2]string {
	t.Helper()
	return namesWith(t, key, "", scale, size)
}

// namesWith is namesOf for a limit with a name.
func namesWith(t testing.TB, key, limit string, scale time.Duration, size int) [2]string {
	t.Helper()
	b, ok := slot.BandsFor(scale, api.MaxValue(size))
	require.True(t, ok)
	names := slotNames(&b, key, limit)
	return [2]string{string(names[slot.A]), string(names[slot.B])}
}

// hash returns the hash of a key and the name of its limit as it is part of names.
func hash(key, limit string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%s:%s", len(limit), limit, key)))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func TestRecordNamesAreAsDocumented(t *testing.T) {
	long := strings.Repeat("k", maxPlain+1)
	require.Equal(t, [2]string{"wsA:1m0s:user:42", "wsB:1m0s:user:42"}, namesOf(t, "user:42", time.Minute, 2))
	require.Equal(t, [2]string{"wiA:1s:", "wiB:1s:"}, namesOf(t, "", time.Second, 2))
	require.Equal(t, [2]string{"whA:24h0m0s:#:\x00\xff", "whB:24h0m0s:#:\x00\xff"}, namesOf(t, "#:\x00\xff", 24*time.Hour, 1))
	require.Equal(t, "wmA:1h0m0s:"+long[1:], namesOf(t, long[1:], time.Hour, 1)[slot.A])
	require.Equal(t, "wmB#1h0m0s:"+hash(long, ""), namesOf(t, long, time.Hour, 1)[slot.B])
	require.Equal(t, [2]string{"wsA+1m0s:5:login:user:42", "wsB+1m0s:5:login:user:42"}, namesWith(t, "user:42", "login", time.Minute, 2))
	require.Equal(t, "wsA+1m0s:3:a:b:"+long[7:], namesWith(t, long[7:], "a:b", time.Minute, 2)[slot.A])
	require.Equal(t, "wsA#1m0s:"+hash(long[6:], "a:b"), namesWith(t, long[6:], "a:b", time.Minute, 2)[slot.A])
}

func TestAllRequestsOfAnActionFitAPacket(t *testing.T) {
	for _, limit := range []string{"", "l", strings.Repeat("l", 64)} {
		for _, n := range []int{0, 1, 12, 13, 79, 80, 81, 255, 256, 10_000, 1 << 20} {
			key := strings.Repeat("k", n)
			for _, name := range namesWith(t, key, limit, 49*365*24*time.Hour+time.Millisecond, 8) {
				require.LessOrEqual(t, len(name), 110, "a key of %d bytes", n)
			}
		}
	}
}

// randomKey returns a key that looks like a part of names, often.
func randomKey(r *rand.Rand) string {
	parts := []string{":", "#", "+", "5:login", "5:login:", "1:", "w", "wsA", "wsB#", "1s", "1m0s", "7", "-1", "k", "\x00", "\xff", "user", strings.Repeat("x", 40)}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

func TestNamesOfWindowsAreUniqueAndParsed(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	type identity struct{ key, limit, tag, scale string }
	seen := make(map[string]identity)
	scales := []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour}
	names := []string{"", "", "", "a", ":", "1:", "5:login", "login", "user", strings.Repeat("x", 64)}
	for range 4000 {
		key := randomKey(r)
		l := window.Limit{Name: names[r.IntN(len(names))], Scale: scales[r.IntN(len(scales))], Algorithm: window.FixedWindow}
		b, ok := slot.BandsFor(l.Scale, api.MaxValue(1<<r.IntN(4)))
		if !ok {
			continue
		}
		for id, name := range slotNames(&b, key, l.Name) {
			is := identity{key, l.Name, b.Tag(slot.ID(id)), l.Scale.String()}
			was, ok := seen[string(name)]
			require.True(t, !ok || was == is, "seed %d: %q is the name of %v and of %v", seed, name, was, is)
			seen[string(name)] = is

			want := Name{Key: key, LimitName: l.Name, Scale: l.Scale, Slot: slot.ID(id), tag: is.tag}
			if part, f := partOf(key, l.Name); f == hashed {
				want = Name{Key: part, Hashed: true, Scale: l.Scale, Slot: slot.ID(id), tag: is.tag}
			}
			got, ok := ParseName(name)
			require.True(t, ok, "seed %d: %q", seed, name)
			require.Equal(t, want, got, "seed %d: %q", seed, name)
			require.Equal(t, name, bothSlots(name)[id])
			require.True(t, got.IsOf(key, l))
			others := []window.Limit{l, l, l}
			others[0].Name += "x"
			others[1].Scale *= 2
			others[2].Algorithm++
			require.False(t, got.IsOf(key+"x", l) || slices.ContainsFunc(others, func(o window.Limit) bool { return got.IsOf(key, o) }))
		}
	}
}

func TestOtherNamesAreNotThoseOfWindows(t *testing.T) {
	for _, name := range []string{
		"", "k", "w", "ws", "wsA", "wsA:", "wsA:1s", "wsAx1s:k", "wsC:1s:k", "wsa:1s:k", "xsA:1s:k", ":wsA:1s:k",
		"wsA:60s:k", "wsA:1:k", "wsA::k", "wsA:0s:k", "wsA:-1s:k", "wsA: 1s:k", "wsA:+1s:k", "wsA:1m:k", "wsA:1000000000h0m0s:k",
		"wsA:1s:" + strings.Repeat("x", maxPlain+1),
		"wsA#1s:short", "wsA#1s:" + strings.Repeat("x", hashLength+1), "wsA#1s:", "wsA#1s",
		"wsA+1s:k", "wsA+1s:", "wsA+1s:1:", "wsA+1s:1:k", "wsA+1s:1k:", "wsA+1s:01:k:u", "wsA+1s:0::u", "wsA+1s:-1:k:u", "wsA+1s:+1:k:u", "wsA+1s:2:k:u",
		"wsA+1s:5:login:" + strings.Repeat("x", maxPlain-7),
		"throttr:sweeper", "al:1s:7:k",
	} {
		_, ok := ParseName([]byte(name))
		require.False(t, ok, "%q", name)
	}
}

// A name that is parsed is the name of the window that it says it is.
func FuzzParseName(f *testing.F) {
	for _, seed := range []string{"wsA:1m0s:user:42", "wiB#1s:" + hash("x", ""), "wxA:1s:k", "wsA+1m0s:5:login:user:42"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		n, ok := ParseName(name)
		if !ok {
			return
		}
		part, f := partOf(n.Key, n.LimitName)
		if n.Hashed {
			part, f = n.Key, hashed
		}
		again := fmt.Sprintf("%s%c%v:%s", n.tag, marks[f], n.Scale, part)
		require.Equal(t, string(name), again)
	})
}
