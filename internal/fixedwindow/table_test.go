package fixedwindow

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// stateUntil returns the state of a count whose window is open until a time.
func stateUntil(key string, until time.Time) *countState {
	l := fixed(time.Minute, 1)
	return &countState{countKey: keyOf(key, &l), janitor: &janitor{}, known: known{ok: true, Window: slot.Window{Times: slot.Times{Latest: until}}}}
}

func TestTableEvictsWhatIsLeastValuable(t *testing.T) {
	now := time.Now()
	var tb table
	tb.init(2 * tableShards) // two counts in each shard
	last := 0
	add := func(until time.Time) *countState { // to the shard of "busy"
		for {
			if last++; tb.shard(fmt.Sprint(last)) == tb.shard("busy") {
				return tb.add(stateUntil(fmt.Sprint(last), until))
			}
		}
	}
	has := func(s *countState) bool { return tb.find(s.countKey) == s }
	busy := tb.add(stateUntil("busy", now.Add(time.Hour)))
	require.True(t, busy.hold())
	over := add(now.Add(-time.Second))
	open := add(now.Add(time.Hour))
	require.Equal(t, []bool{false, true}, []bool{has(over), has(open)}, "its window is over")
	another := add(now.Add(time.Hour))
	require.Equal(t, []bool{true, false, true}, []bool{has(busy), has(open), has(another)}, "its window can be looked up again")

	for _, s := range []*countState{busy, another, stateUntil("busy", now)} { // in use, open, and others of a count
		tb.remove(s)
		require.True(t, has(busy) && has(another))
	}
	busy.release(false)
	busy.forget()
	tb.remove(busy)
	require.False(t, has(busy))
}

// A call finds the state of a count, which is evicted, and then the call opens a window. The next call has to find that
// window, with its ID.
func TestACountThatOpensAWindowStaysInTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, inMemory(t))
		o.MaxWindows = 1
		b := start(t, o)
		l := fixed(time.Minute, 10)
		s, err := b.stateFor(t.Context(), "k", &l, 1)
		require.NoError(t, err)
		b.table.remove(s)
		require.Zero(t, b.table.len())
		a := s.countHit(t.Context(), hit{max: 10, n: 1})
		require.NoError(t, a.err)
		require.Same(t, s, b.table.add(newState(b, *s.bands, s.countKey)), "a call that has not found it")
		require.Equal(t, 1, b.table.len())
		for i := range 3 {
			hits(t, b, 1, fmt.Sprint(i), l)
		}
		b.table.remove(s)
		again, _, err := b.Hit(t.Context(), "k", l, 1)
		require.NoError(t, err)
		require.Equal(t, a.window.ID, again.ID)
		require.EqualValues(t, 2, again.Count)
	})
}

// knows returns the state of a count with windows of a scale, of which the open one is known.
func knows(scale time.Duration, k known) *countState {
	bands := slot.Bands{Scale: scale, Largest: math.MaxUint16, Guard: time.Hour}
	return &countState{backend: &Backend{}, records: records{bands: &bands}, known: k}
}

// A window of a minute was read at 100 s, and ends between 160 and 161 s.
func TestAdmitDecidesFromWhatIsKnown(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	one, charge := hit{max: 10, n: 1}, hit{max: math.MaxUint16, n: 1, charge: true}
	others := func(sum, max uint64) shared {
		return shared{callers: make([]*caller, 1), sum: sum, max: max}
	}
	for _, c := range []struct {
		name   string
		known  bool
		count  uint64
		now    float64
		fresh  bool
		shared shared
		hit    hit
		memory time.Duration
		want   verdict
	}{
		{name: "no window is known", now: 101, hit: one, want: waits},
		{name: "there is no window", now: 101, fresh: true, hit: one, want: shares},
		{name: "there is no window, and the request is full", now: 101, fresh: true, shared: others(65524, 10), hit: one, want: waits},

		{name: "within the limit", known: true, count: 9, now: 101, hit: one, want: shares},
		{name: "at the limit", known: true, count: 10, now: 101, hit: one, want: shares},
		{name: "with others", known: true, count: 9, now: 101, shared: others(65523, 10), hit: one, want: shares},
		{name: "a full request", known: true, count: 9, now: 101, shared: others(65524, 10), hit: one, want: waits},
		{name: "a full request for the limit of another", known: true, count: 9, now: 101, shared: others(65484, 50), hit: one, want: waits},
		{name: "may be over", known: true, count: 9, now: 160, hit: one, want: waits},
		{name: "just not over", known: true, count: 9, now: 159.999, hit: one, want: shares},
		{name: "may be over, but was just read", known: true, count: 9, now: 160.5, fresh: true, hit: one, want: shares},

		{name: "full", known: true, count: 11, now: 101, hit: one, want: decided},
		{name: "full for this hit, with others", known: true, count: 11, now: 101, shared: others(5, 50), hit: one, want: decided},
		{name: "full, read a moment ago", known: true, count: 11, now: 103.999, hit: one, want: decided},
		{name: "full, read at once", known: true, count: 11, now: 100.5, hit: one, want: decided},
		{name: "full, read again, and over since", known: true, count: 11, now: 161.5, fresh: true, hit: one, want: decided},
		{name: "full, read too long ago", known: true, count: 11, now: 104, hit: one, want: waits},
		{name: "full, read again", known: true, count: 11, now: 105, fresh: true, hit: one, want: decided},
		{name: "full, and just not over", known: true, count: 11, now: 159.999, hit: one, memory: time.Hour, want: decided},
		{name: "full, and may be over", known: true, count: 11, now: 160, hit: one, memory: time.Hour, want: waits},
		{name: "full, and no denial is remembered", known: true, count: 11, now: 100, hit: one, memory: -1, want: waits},

		{name: "an increment of any size", known: true, count: 9, now: 101, hit: hit{max: 10, n: 65535}, want: shares},
		{name: "a charge of a full window", known: true, count: 11, now: 101, hit: charge, want: shares},
		{name: "a charge that may not fit", known: true, count: 65535, now: 101, hit: charge, want: shares},
		{name: "a charge with others", known: true, count: 9, now: 101, shared: others(1, 10), hit: charge, want: waits},
	} {
		times := slot.Times{Sent: at(100), Until: at(160), Latest: at(161)}
		s := knows(time.Minute, known{ok: c.known, id: 7, Window: slot.Window{Count: c.count, Times: times}})
		s.backend = &Backend{Options: Options{DenialMemory: cmp.Or(c.memory, 4*time.Second)}}
		c.shared.now = at(c.now)
		s.queue.prepared = c.fresh
		if c.fresh {
			s.queue.plan.conn = new(conn.Conn) // which matters only without a known window
		}
		verdict, w := s.admit(&c.shared, &c.hit, c.fresh)
		require.Equal(t, c.want, verdict, c.name)
		if c.want == decided {
			left := min(time.Minute, max(1, at(161).Sub(at(c.now))))
			require.Equal(t, window.Window{Count: c.count, ID: 7, ExpiresAt: at(c.now).Add(left), Left: left}, w, c.name)
		} else {
			require.Zero(t, w, c.name)
		}
	}
}

func TestDenialMemoryFollowsTheScale(t *testing.T) {
	b := &Backend{}
	for scale, want := range map[time.Duration]time.Duration{
		time.Millisecond: 10 * time.Millisecond, time.Second: 100 * time.Millisecond,
		10 * time.Second: time.Second, time.Hour: time.Second,
	} {
		require.Equal(t, want, b.denialMemoryOf(scale), "%v", scale)
	}
	for _, d := range []time.Duration{time.Minute, -1} {
		b.DenialMemory = d
		require.Equal(t, d, b.denialMemoryOf(time.Second))
	}
}

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
