package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// longestScale is the longest one of whole microseconds.
const longestScale = window.MaxScale / time.Microsecond * time.Microsecond

// Token buckets of all sizes fill in their scale, and give no more.
func TestTokenBucketsOfAllSizes(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	for _, l := range []window.Limit{
		limitOf(window.TokenBucket, time.Millisecond, 1), limitOf(window.TokenBucket, time.Millisecond, 7_000_000),
		limitOf(window.TokenBucket, time.Second, 3), limitOf(window.TokenBucket, time.Second, 1<<30),
		limitOf(window.TokenBucket, 24*time.Hour, 1e6), limitOf(window.TokenBucket, 30*24*time.Hour, 1<<40),
		limitOf(window.TokenBucket, longestScale, 1), limitOf(window.TokenBucket, longestScale, 1<<50),
	} {
		clock := backendtest.NewClock()
		b := redisbackend.New(client, rediswindow.WithClock(clock.Now), rediswindow.WithPrefix(l.String()))
		w := must(t, b.Hit, "k", l, l.Max)
		expect(t, !w.Refused && w.Count == l.Max && w.Left >= l.Scale && w.Left <= l.Scale+l.Scale/1000, "%v: %+v", l, w)
		w = must(t, b.Hit, "k", l, 1)
		token := l.Scale/time.Duration(min(l.Max, 1e6)) + time.Microsecond
		expect(t, w.Refused && w.Count == l.Max && w.RetryAfter > 0 && w.RetryAfter <= token, "%v: %+v", l, w)
		clock.Advance(l.Scale / 2 / time.Microsecond * time.Microsecond)
		var n uint64
		for step := l.Max; step > 0; step /= 2 {
			if !must(t, b.Hit, "k", l, step).Refused {
				n += step
			}
		}
		expect(t, n <= l.Max/2+l.Max/10000+1 && n+l.Max/1000 >= l.Max/2, "%v: %d came back in half a scale", l, n)
	}
}

func TestLimitsOfSlidingLogsAreBounded(t *testing.T) {
	clock := backendtest.NewClock()
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s), rediswindow.WithClock(clock.Now))
	l := limitOf(window.SlidingLog, time.Second, 10_001)
	err := errorOf(b.Check(l))
	expect(t, errors.Is(err, window.ErrRange) && strings.Contains(err.Error(), "10000"), "%v", err)
	noError(t, errorOf(redisbackend.New(connect(t, s), rediswindow.WithMaxLog(20_000)).Check(l)))
	l.Max = 10_000
	for i := range uint64(10) {
		w := must(t, b.Hit, "k", l, 1000)
		expect(t, !w.Refused && w.Count == 1000*(i+1), "%+v", w)
		clock.Advance(50 * time.Millisecond)
	}
	bytes, err := strconv.Atoi(s.Must(t, "MEMORY", "USAGE", "throttr:{k:k}:v2", "SAMPLES", "0"))
	expect(t, err == nil && bytes <= 12*10_000, "a log of 10,000 hits takes %d bytes, %v", bytes, err)
	clock.Advance(500 * time.Millisecond) // the first thousand is over
	w := must(t, b.Hit, "k", l, 1001)
	expect(t, w.Refused && w.RetryAfter == 50*time.Millisecond, "%+v", w)
	w = must(t, b.Hit, "k", l, 1000)
	expect(t, !w.Refused && w.Count == 10_000, "%+v", w)
	w = must(t, b.Set, "k", l, 1<<40)
	expect(t, w.Count == 10_000, "%+v", w)
}

// Products of a count and a time are not exact in a script from 2^53 on. Some of those here are a multiple of the
// scale, where rounding up is most likely to be wrong, and many are the same double.
func TestSlidingWindowsAreExactWhereDoublesAreNot(t *testing.T) {
	clock := backendtest.NewClock()
	b := redisbackend.New(connect(t, testkit.StartRedis(t)), rediswindow.WithClock(clock.Now))
	r := rand.New(rand.NewPCG(1, 2))
	tried := 0
	for i := range 600 {
		scale := 24 * time.Hour
		before := uint64(1_000_000)
		into := time.Duration(r.Int64N(1_000_000)) * (scale / 1_000_000)
		if i%3 > 0 {
			scale = time.Duration(1000+r.Int64N(longestScale.Microseconds()/2)>>r.IntN(30)) * time.Microsecond
			before = rediswindow.MaxCount - r.Uint64N(1000)
			into = time.Duration(r.Int64N(scale.Microseconds())) * time.Microsecond
		}
		start := limits.AlignedStart(backendtest.NewClock().Now(), scale)
		set(clock, start)
		key := fmt.Sprint(i)
		l := limitOf(window.SlidingWindow, scale, 10)
		must(t, b.Set, key, l, before)
		set(clock, start.Add(scale+into))
		counted := must(t, b.Peek, key, l, 0).Count
		part := big.NewInt((scale - into).Microseconds())
		weight := part.Mul(part, new(big.Int).SetUint64(before))
		weight.Add(weight, big.NewInt(scale.Microseconds()-1)).Div(weight, big.NewInt(scale.Microseconds()))
		expect(t, before > 1_000_000 || counted == weight.Uint64(), "%d are counted, want %v", counted, weight)
		l.Max = counted + r.Uint64N(3)
		if l.Max > rediswindow.MaxCount {
			continue
		}
		room := l.Max - counted
		w := must(t, b.Take, key, l, room+1)
		expect(t, w.Refused && w.RetryAfter > 0, "%d of %d: %+v", room+1, l.Max, w)
		peeked, taken := must(t, b.Peek, key, l, room), must(t, b.Take, key, l, room)
		expect(t, !peeked.Refused && !taken.Refused && taken.Count == l.Max, "%d of %d: %+v", room, l.Max, taken)
		tried++
	}
	expect(t, tried > 400, "only %d", tried)
}

// The conformance suite has what is too large.
func TestBoundsOfScripts(t *testing.T) {
	b := redisbackend.New(connect(t, testkit.StartRedis(t)))
	fixed := func(scale time.Duration, most uint64) window.Limit { return limitOf(window.FixedWindow, scale, most) }
	err := errorOf(b.Hit(t.Context(), "k", fixed(time.Hour, 1<<53), 1))
	expect(t, err != nil && strings.HasSuffix(err.Error(), `hit "k": Max 9007199254740992 is out of range: it may be at most 2^53-1`), "%v", err)
	for _, scale := range []time.Duration{time.Millisecond + 1, time.Second + 999} {
		for _, err := range []error{errorOf(b.Check(fixed(scale, 1))), errorOf(b.Delete(t.Context(), "k", time.Second, scale))} {
			expect(t, errors.Is(err, window.ErrScale) && strings.Contains(err.Error(), "not a whole number of microseconds"), "%v", err)
		}
	}
	for _, scale := range []time.Duration{time.Millisecond, longestScale} {
		w := must(t, b.Charge, "k", fixed(scale, 1), 1)
		expect(t, w.Count == 1 && w.Left == scale && time.Until(w.ExpiresAt) <= scale, "%v: %+v", scale, w)
	}
	for a, most := range map[window.Algorithm]uint64{window.FixedWindow: rediswindow.MaxCount,
		window.SlidingWindow: rediswindow.MaxCount, window.TokenBucket: 20, window.SlidingLog: rediswindow.DefaultMaxLog} {
		l := limitOf(a, time.Hour, 10)
		for i, n := range []uint64{1, rediswindow.MaxCount, 1 << 53, window.Unlimited} { // nothing is lost of any number
			w := must(t, b.Charge, "charged", l, n)
			expect(t, w.Count == most || i == 0 && w.Count == 1, "%v: %d after a charge of %d", a, w.Count, n)
		}
	}
	full := fixed(time.Hour, 10)
	must(t, b.Set, "full", full, rediswindow.MaxCount)
	w := must(t, b.Hit, "full", full, 2)
	expect(t, w.Refused && w.Count == rediswindow.MaxCount, "%+v", w)
	given, err := b.GiveBack(t.Context(), "full", full, 1, w.ID)
	expect(t, !given && err == nil, "what was counted is not known, and is given back: %v, %v", given, err)
}

// A refused take changes the rate of a bucket, unless it is of several limits. So does a charge that can't count
// anything, unless its Max is 0.
func TestWhatChangesTheRateOfABucket(t *testing.T) {
	clock := backendtest.NewClock()
	b := redisbackend.New(connect(t, testkit.StartRedis(t)), rediswindow.WithClock(clock.Now))
	l := limitOf(window.TokenBucket, 10*time.Second, 20)
	must(t, b.Take, "k", l, 20)
	fast := limitOf(window.TokenBucket, 10*time.Second, 100)
	granted, err := b.TakeAll(t.Context(), []window.Take{fast.For("k", 1), l.For("other", 21)}, make([]window.Window, 2))
	expect(t, !granted && err == nil, "21 of 20 are granted: %v", err)
	clock.Advance(5 * time.Second)
	w := must(t, b.Peek, "k", l, 0)
	expect(t, w.Count == 10, "%+v", w)
	must(t, b.Charge, "k", l, 100) // it then owes twice what it holds, and a charge counts no more
	slow := window.Limit{Max: 5, Scale: l.Scale, Burst: 8, Algorithm: window.TokenBucket}
	must(t, b.Charge, "k", slow, 1)
	for _, unchanged := range []window.Limit{{Max: 5, Burst: 4}, {}} {
		unchanged.Scale, unchanged.Algorithm = l.Scale, l.Algorithm
		must(t, b.Charge, "k", unchanged, 1)
	}
	for listed, err := range b.List(t.Context(), "k") {
		expect(t, err == nil && listed.Limit == slow, "%+v, %v", listed, err)
	}
}

// A hash lives as long as the last of its windows, and at most the longest scale and a second more.
func TestHashesLiveAsLongAsTheirWindows(t *testing.T) {
	each(t, func(t *testing.T, s *testkit.Redis, a window.Algorithm) {
		const busy = 10 * time.Second // a machine may be
		b := redisbackend.New(connect(t, s))
		var left, longest time.Duration
		for _, scale := range []time.Duration{time.Minute, time.Hour, time.Second} {
			longest = max(longest, scale)
			for range 4 { // the last one is refused
				left = max(left, must(t, b.Take, "k", limitOf(a, scale, 7), 2).Left)
				lives, err := strconv.Atoi(s.Must(t, "PTTL", "throttr:{k:k}:v2"))
				noError(t, err)
				more := time.Duration(lives)*time.Millisecond - left
				expect(t, more > -busy && more <= longest+2*time.Second, "%v: %v more than %v", scale, more, left)
			}
		}
	})
}

func TestConformance(t *testing.T) {
	s := testkit.StartRedis(t)
	conformance(t, connect(t, s), connect(t, s))
}

// conformance runs the suite with two clients of one server.
func conformance(t *testing.T, client, second rueidis.Client) {
	testkit.Conform(t, func(opts ...rediswindow.Option) (one, other *rediswindow.Backend) {
		return redisbackend.New(client, opts...), redisbackend.New(second, opts...)
	})
}

func TestBackendOnAClusterConforms(t *testing.T) {
	nodes := testkit.StartCluster(t, 3, 0).Primaries
	client := connect(t, nodes[1])
	conformance(t, client, connect(t, nodes[0]))

	// The suite has few keys. These are spread over all nodes.
	b := redisbackend.New(client)
	for i := range 3000 {
		key := fmt.Sprint("user:", i%1000)
		w := must(t, b.Hit, key, limitOf(window.FixedWindow, time.Hour, 3), 1)
		expect(t, w.Count == uint64(i/1000+1), "%s: %+v", key, w)
	}
	for _, s := range nodes {
		expect(t, s.Must(t, "DBSIZE") != "0", "node %s has no keys", s.Addr)
		s.Must(t, "CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint") // it tells ports only
	}
	again := redisbackend.New(client)
	await(t, "the nodes are not known", func() bool {
		must(t, again.Peek, "k", limitOf(window.FixedWindow, time.Hour, 3), 0)
		return again.Part("k") != ""
	})
}

// A window that starts a scale or more in the future is over, as it is in memory. To any other, a take that was made
// before the clock was set back can be given back.
func TestWindowsSurviveAClockThatGoesBack(t *testing.T) {
	each(t, func(t *testing.T, s *testkit.Redis, a window.Algorithm) {
		clock := backendtest.NewClock()
		begin := clock.Now()
		b := redisbackend.New(connect(t, s), rediswindow.WithClock(clock.Now))
		inMemory := memory.New(memory.WithClock(clock.Now))
		l := limitOf(a, time.Minute, 10)
		for _, back := range []time.Duration{time.Microsecond, time.Second, 59 * time.Second, time.Minute, 24 * time.Hour} {
			set(clock, begin)
			key := back.String()
			takes := func(room uint64) {
				t.Helper()
				last, more := must(t, b.Take, key, l, room), must(t, b.Take, key, l, 1)
				expect(t, !last.Refused && more.Refused, "%v back: not %d are granted: %+v, %+v", back, room, last, more)
			}
			first := must(t, b.Take, key, l, 5)
			takes(5)
			must(t, inMemory.Take, key, l, 10)
			set(clock, begin.Add(-back))
			over := back >= time.Minute
			w := must(t, b.Peek, key, l, 1)
			expect(t, w.Refused == !over && (w.Count == 0) == over && (w.Left == 0) == over, "%v back: %+v", back, w)
			same := must(t, inMemory.Peek, key, l, 1)
			expect(t, over || w.RetryAfter == same.RetryAfter && w.Left == same.Left, "%v back: %+v, in memory %+v", back, w, same)
			given, err := b.GiveBack(t.Context(), key, l, 5, first.ID)
			expect(t, given == !over && err == nil, "%v back: %v, %v", back, given, err)
			takes(map[bool]uint64{true: 10, false: 5}[over])
			clock.Advance(3 * time.Minute)
			takes(10)
		}
	})
}

// What the window before has counted weighs no more than when the present one began.
func TestWeightIsBoundedAfterAClockWentBack(t *testing.T) {
	clock := backendtest.NewClock()
	begin := clock.Now().Truncate(time.Minute)
	set(clock, begin)
	b := redisbackend.New(connect(t, testkit.StartRedis(t)), rediswindow.WithClock(clock.Now))
	l := limitOf(window.SlidingWindow, time.Minute, 10)
	must(t, b.Take, "k", l, 4)
	clock.Advance(time.Minute)
	must(t, b.Take, "k", l, 1)
	clock.Advance(-30 * time.Second)
	w := must(t, b.Peek, "k", l, 5)
	expect(t, w.Count == 5 && !w.Refused, "%+v", w)
}

// The test waits in real time, because the clock of the server is real. It is on the same machine.
func TestWindowsEndByTheClockOfTheServerAndAreRemoved(t *testing.T) {
	const scale = 200 * time.Millisecond
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	for _, a := range algorithms {
		var last window.Window
		for range 2 {
			before := time.Now().Truncate(time.Microsecond)
			w := must(t, b.Hit, "k", limitOf(a, scale, 1), 1)
			now := w.ExpiresAt.Add(-w.Left)
			expect(t, !now.Before(before) && !now.After(time.Now()), "%v: %+v at %v", a, w, before)
			expect(t, w.Count == 1 && !w.Refused && !now.Before(last.ExpiresAt), "%v: %+v follows on %+v", a, w, last)
			expect(t, a.Rolling() || w.Left <= scale, "%v: %+v", a, w)
			expect(t, a != window.AlignedWindow || w.ExpiresAt.Equal(limits.AlignedStart(now, scale).Add(scale)), "%+v", w)
			last = w
			time.Sleep(w.Left)
		}
	}
	await(t, "the hash is left", func() bool { return s.Must(t, "DBSIZE") == "0" })
}

// skewed is a client of a server that has a clock of its own, whatever that of the backend shows.
type skewed struct {
	plainClient
	clock   backendtest.Clock
	scripts int
}

func (s *skewed) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	s.scripts++
	args = slices.Clone(args)
	args[0] = strconv.FormatInt(s.clock.Now().UnixMicro(), 10)
	return s.plainClient.Eval(ctx, script, keys, args)
}

// Two clients whose clocks are on both sides of midnight count in one window: that of the server's clock.
func TestCalendarWindowsAreThoseOfTheServersClock(t *testing.T) {
	day := window.Limit{Name: "n", Max: 5, Calendar: window.Day, Zone: "Europe/Berlin", Algorithm: window.CalendarWindow}
	fixed := limitOf(window.FixedWindow, time.Hour, 10)
	berlin, err := time.LoadLocation(day.Zone)
	noError(t, err)
	midnight := time.Date(2027, time.March, 28, 0, 0, 0, 0, berlin) // a day of 23 hours
	clock := backendtest.NewClock()
	server := &skewed{plainClient: plainClient{connect(t, testkit.StartRedis(t))}, clock: clock}
	differs := func(d time.Duration) *rediswindow.Backend {
		return rediswindow.New(server, rediswindow.WithClock(func() time.Time { return clock.Now().Add(d) }))
	}
	behind, ahead, far := differs(-2*time.Minute), differs(2*time.Minute), differs(1000*time.Hour)
	took := func(b *rediswindow.Backend, key string, count uint64, ends time.Time, scripts int) {
		t.Helper()
		before := server.scripts
		w := must(t, b.Take, key, day, 1)
		expect(t, w.Count == count && w.ExpiresAt.Equal(ends) && w.Left == ends.Sub(clock.Now()), "%+v, want %d until %v", w, count, ends)
		expect(t, server.scripts == before+scripts, "%d scripts", server.scripts-before)
	}

	set(clock, midnight.Add(-time.Minute))
	took(ahead, "a", 1, midnight, 2) // it believes in the next day, and asks once more
	took(ahead, "a", 2, midnight, 1) // a window that is open keeps its end
	took(behind, "a", 3, midnight, 1)
	took(far, "a", 4, midnight, 1)
	w := must(t, ahead.Peek, "a", day, 1)
	expect(t, w.Count == 4 && w.ExpiresAt.Equal(midnight), "%+v", w)

	set(clock, midnight.Add(time.Minute))
	next := midnight.AddDate(0, 0, 1)
	expect(t, next.Sub(midnight) == 23*time.Hour, "%v", next)
	took(behind, "a", 1, next, 2)
	took(far, "a", 2, next, 1)
	w = must(t, far.Set, "a", day, 4)
	expect(t, w.Count == 4 && w.ExpiresAt.Equal(next), "%+v", w)

	set(clock, next.Add(time.Minute)) // 24 h after the last midnight it is not yet
	took(far, "a", 1, next.AddDate(0, 0, 1), 2)
	next = next.AddDate(0, 0, 1)

	// A take of several limits asks once more, too, and counts each once.
	windows := make([]window.Window, 2)
	granted, err := far.TakeAll(t.Context(), []window.Take{fixed.For("b", 2), day.For("b", 3)}, windows)
	expect(t, granted && err == nil && windows[0].Count == 2 && windows[1].Count == 3 && windows[1].ExpiresAt.Equal(next), "%v, %v, %+v", granted, err, windows)
	granted, err = far.TakeAll(t.Context(), []window.Take{fixed.For("b", 2), day.For("b", 3)}, windows)
	expect(t, !granted && err == nil && windows[0].Count == 2 && windows[1].Count == 3, "%v, %v, %+v", granted, err, windows)
}
