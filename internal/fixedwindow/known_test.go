package fixedwindow

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// A window of a minute was read at 100 s, and ends between 160 and 161 s.
func TestAdmitDecidesFromWhatIsKnown(t *testing.T) {
	const join, wait, decided = coalesce.Share, coalesce.Defer, coalesce.Decided
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	hit := func(limit, increment uint64) coalesce.Hit { return coalesce.Hit{Max: limit, Increment: increment} }
	must := func(increment uint64) coalesce.Hit {
		return coalesce.Hit{Max: maxValue[uint16](), Increment: increment, Must: true}
	}
	for _, c := range []struct {
		name   string
		known  bool
		count  uint64
		now    float64
		fresh  bool
		shared coalesce.SharedHits
		hit    coalesce.Hit
		want   coalesce.Verdict
	}{
		{name: "no window is known", now: 101, hit: hit(10, 1), want: wait},
		{name: "there is no window", now: 101, fresh: true, hit: hit(10, 1), want: join},
		{name: "there is no window, and the request is full", now: 101, fresh: true,
			shared: coalesce.SharedHits{Hits: 1, Sum: 65524, Max: 10}, hit: hit(10, 1), want: wait},

		{name: "within the limit", known: true, count: 9, now: 101, hit: hit(10, 1), want: join},
		{name: "at the limit", known: true, count: 10, now: 101, hit: hit(10, 1), want: join},
		{name: "with others", known: true, count: 9, now: 101,
			shared: coalesce.SharedHits{Hits: 1, Sum: 65523, Max: 10}, hit: hit(10, 1), want: join},
		{name: "a full request", known: true, count: 9, now: 101,
			shared: coalesce.SharedHits{Hits: 1, Sum: 65524, Max: 10}, hit: hit(10, 1), want: wait},
		{name: "may be over", known: true, count: 9, now: 160, hit: hit(10, 1), want: wait},
		{name: "just not over", known: true, count: 9, now: 159.999, hit: hit(10, 1), want: join},
		{name: "may be over, but was just read", known: true, count: 9, now: 160.5, fresh: true, hit: hit(10, 1), want: join},

		{name: "full", known: true, count: 11, now: 101, hit: hit(10, 1), want: decided},
		{name: "full for this hit, with others in the request", known: true, count: 11, now: 101,
			shared: coalesce.SharedHits{Hits: 5, Sum: 5, Max: 50}, hit: hit(10, 1), want: decided},
		{name: "full, read a moment ago", known: true, count: 11, now: 103.999, hit: hit(10, 1), want: decided},
		{name: "full, read too long ago", known: true, count: 11, now: 104, hit: hit(10, 1), want: wait},
		{name: "full, read again", known: true, count: 11, now: 105, fresh: true, hit: hit(10, 1), want: decided},

		{name: "an increment of any size", known: true, count: 9, now: 101, hit: hit(10, 65535), want: join},
		{name: "a charge of a full window", known: true, count: 11, now: 101, hit: must(1), want: join},
		{name: "a charge that may not fit", known: true, count: 65535, now: 101, hit: must(1), want: join},
		{name: "a charge with others", known: true, count: 9, now: 101,
			shared: coalesce.SharedHits{Hits: 1, Sum: 1, Max: 10}, hit: must(1), want: wait},
	} {
		k := &known{bands: &slot.Bands{Scale: time.Minute, Largest: math.MaxUint16}, denialMemory: 4 * time.Second, ok: c.known}
		k.state = state{id: 7, Window: slot.Window{Count: c.count, Times: slot.Times{Sent: at(100), Until: at(160), Latest: at(161)}}}
		c.shared.Now, c.shared.Fresh, c.shared.QueuedBefore = at(c.now), c.fresh, c.fresh
		verdict, r := k.admit(c.shared, c.hit)
		require.Equal(t, c.want, verdict, c.name)
		if c.want == decided {
			require.Equal(t, window.Window{Count: c.count, ID: 7, ExpiresAt: at(161).Add(min(0, at(c.now+60).Sub(at(161)))), Left: min(time.Minute, at(161).Sub(at(c.now)))}, r, c.name)
		} else {
			require.Zero(t, r, c.name)
		}
	}
}

// Denial memory ends before the window may, so that no hit is denied in the next one.
func TestDenialsEndBeforeTheWindowMay(t *testing.T) {
	end := time.Unix(160, 0)
	k := &known{bands: &slot.Bands{Scale: time.Minute, Largest: math.MaxUint16}, denialMemory: time.Hour, ok: true}
	k.state = state{Window: slot.Window{Count: 11, Times: slot.Times{Sent: end.Add(-time.Minute), Until: end, Latest: end.Add(time.Second)}}}
	require.True(t, k.mayRefuse(end.Add(-1)))
	require.False(t, k.mayRefuse(end))
	k.denialMemory = -1
	require.False(t, k.mayRefuse(end.Add(-time.Minute)))
}

func TestDenialMemoryFollowsTheScale(t *testing.T) {
	b := client[uint16](t, inMemory(t))
	for scale, want := range map[time.Duration]time.Duration{
		time.Millisecond: 10 * time.Millisecond, time.Second: 100 * time.Millisecond,
		10 * time.Second: time.Second, time.Hour: time.Second,
	} {
		require.Equal(t, want, b.denialMemoryOf(scale), "%v", scale)
	}
	b.denialMemory = time.Minute
	require.Equal(t, time.Minute, b.denialMemoryOf(time.Second))
	b.denialMemory = -1
	require.Negative(t, b.denialMemoryOf(time.Second))
}

func TestEndOfAWindowNarrowsWithEachObservation(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, c := range []struct {
		name           string
		now, old, want [2]int
		same           bool
	}{
		{"within", [2]int{3, 5}, [2]int{1, 9}, [2]int{3, 5}, true},
		{"around", [2]int{1, 9}, [2]int{3, 5}, [2]int{3, 5}, true},
		{"earlier", [2]int{1, 4}, [2]int{3, 5}, [2]int{3, 4}, true},
		{"later", [2]int{4, 9}, [2]int{3, 5}, [2]int{4, 5}, true},
		{"a point", [2]int{5, 9}, [2]int{3, 5}, [2]int{5, 5}, true},
		{"another window", [2]int{6, 9}, [2]int{3, 5}, [2]int{6, 9}, false},
		{"another window before", [2]int{0, 2}, [2]int{3, 5}, [2]int{0, 2}, false},
	} {
		k := &known{bands: &slot.Bands{Guard: time.Hour}, ids: new(atomic.Int64)}
		windowOf := func(from, to time.Time) state {
			return state{Window: slot.Window{Times: slot.Times{Until: from, Latest: to}}}
		}
		learn := func(s state) state {
			k.learn(&s)
			known, ok := k.current()
			require.True(t, ok)
			require.Equal(t, known, s)
			return s
		}
		old := learn(windowOf(at(c.old[0]), at(c.old[1])))
		now := learn(windowOf(at(c.now[0]), at(c.now[1])))
		require.Equal(t, [2]time.Time{at(c.want[0]), at(c.want[1])}, [2]time.Time{now.Until, now.Latest}, c.name)
		require.Equal(t, c.same, old.id == now.id, c.name)

		next := windowOf(now.Until, now.Latest)
		next.Slot = slot.B
		other := learn(next)
		require.NotEqual(t, now.id, other.id, "the window of another slot")
		k.forget()
		again := learn(next)
		require.NotEqual(t, other.id, again.id, "a window after a Reset")
	}
}

func TestKnownWindowIsOpenUntilItMayBeOver(t *testing.T) {
	end := time.Unix(160, 0)
	k := &known{ok: true, state: state{Window: slot.Window{Times: slot.Times{Until: end, Latest: end.Add(time.Second)}}}}
	open := func(at time.Time) bool { _, ok := k.certainlyOpen(at); return ok }
	require.True(t, open(end.Add(-1)))
	require.False(t, open(end))
	require.True(t, k.maybeOpen(end.Add(time.Second-1)))
	require.False(t, k.maybeOpen(end.Add(time.Second)))
	k.forget()
	require.False(t, open(end.Add(-1)))
	require.False(t, k.maybeOpen(end.Add(-1)))
}

func TestEndOfAResultIsWithinAScale(t *testing.T) {
	now := time.Unix(100, 0)
	for end, left := range map[time.Duration]time.Duration{
		-time.Second:     1,
		0:                1,
		time.Second:      time.Second,
		10 * time.Second: 10 * time.Second,
		11 * time.Second: 10 * time.Second,
	} {
		s := state{Window: slot.Window{Count: 7, Times: slot.Times{Until: now, Latest: now.Add(end)}}}
		require.Equal(t, window.Window{Count: 7, ExpiresAt: now.Add(left), Left: left}, s.window(10*time.Second, now), "%v", end)
	}
}

// model is a counter that a server keeps, and which hits were granted.
type model struct{ largest, count uint64 }

// add adds shared hits as a server does with DECREASE. It returns the count that they are given.
func (m *model) add(sum uint64) (count uint64) {
	if sum > m.largest-m.count {
		return m.count + min(sum, math.MaxUint64-m.count)
	}
	m.count += sum
	return m.count
}

// Hits share a request if fits says so. Each of them has the place that it would have if it were
// counted alone, or it is denied all the same.
func TestSharedHitsAreAllDeniedIfTheCounterCannotHoldThem(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	exhausted, shared := 0, 0
	for range 20_000 {
		largest := uint64(math.MaxUint8)
		if r.IntN(4) == 0 {
			largest = math.MaxUint64
		}
		value := func() uint64 { // often small, or close to the largest
			switch r.IntN(3) {
			case 0:
				return r.Uint64N(5)
			case 1:
				return largest - r.Uint64N(5)
			default:
				return r.Uint64N(largest) + r.Uint64N(2)
			}
		}
		m := model{largest: largest, count: value()}
		var b coalesce.SharedHits
		var hits []coalesce.Hit
		for range 1 + r.IntN(5) {
			// The count of a denied hit is at most 2^64-1, so a limit of that much denies nothing.
			h := coalesce.Hit{Max: min(value(), math.MaxUint64-1), Increment: value()}
			if !fits(largest, b, h) {
				require.NotEmpty(t, hits, "a lone hit fits, seed %d", seed)
				break
			}
			b.Hits++
			b.Sum += h.Increment
			b.Max = max(b.Max, h.Max)
			hits = append(hits, h)
		}
		if len(hits) > 1 {
			shared++
		}
		before := m.count
		count := m.add(b.Sum)
		counted := m.count == before+b.Sum
		if !counted {
			exhausted++
			require.Equal(t, before, m.count)
		}
		// The coalescer gives places backwards from the last count.
		granted := before
		for i := len(hits) - 1; i >= 0; i-- {
			h := hits[i]
			if counted {
				require.LessOrEqual(t, count, largest, "seed %d", seed)
			} else {
				require.Greater(t, count, h.Max, "seed %d: hit %d of %+v is granted, but the count stays %d", seed, i, hits, before)
			}
			if count <= h.Max {
				granted = max(granted, count)
			}
			count -= min(count, h.Increment)
		}
		require.LessOrEqual(t, granted, m.count, "seed %d", seed)
	}
	require.NotZero(t, exhausted)
	require.NotZero(t, shared)
}

// The count of a request with takes may contain what is given back at once. Until that is known, it
// refuses no other take.
func TestTakesThatMayBeGivenBackDoNotRefuseOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options[uint16](t, inMemory(t))
		b := start(t, o)
		const scale, limit = 10 * time.Second, 10
		l := fixed(scale, limit)
		w, _, err := b.Take(t.Context(), "k", l, 6)
		require.NoError(t, err)
		require.False(t, w.Refused)
		e := b.table.find(entryKeyOf("k", &l))
		count := func(n uint64) {
			t.Helper()
			out := e.Count(t.Context(), coalesce.SharedHits{Hits: 1, Sum: n, Max: limit, Takes: true, Now: time.Now()})
			require.NoError(t, out.Err)
			require.True(t, out.WindowOpen)
		}
		check := func(want coalesce.Verdict, wantRecent bool) {
			t.Helper()
			verdict, _ := e.Admit(coalesce.SharedHits{Now: time.Now()}, coalesce.Hit{Max: limit, Increment: 1, Take: true})
			require.Equal(t, want, verdict)
			_, mayRefuse, ok := e.known.recall(time.Now())
			require.True(t, ok)
			require.Equal(t, wantRecent, mayRefuse)
		}
		check(coalesce.Share, true)
		count(5) // 11 is beyond the limit
		check(coalesce.Defer, false)
		e.Subtract(5)
		check(coalesce.Share, true)
		e.GiveBack(t.Context(), 5)
		check(coalesce.Share, true)
		count(4) // all of it is granted
		check(coalesce.Decided, true)
	})
}
