package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestDecisionsOfALimit(t *testing.T) {
	forStores(t, func(t *testing.T, s shell, redis bool) {
		const limit = " --scale 1m --limit 5 "
		decision := func(status int, line string, rows ...string) {
			t.Helper()
			s.prints(status, "key decision count limit remaining ends in\n"+strings.Join(rows, "\n")+"\n", line)
		}
		decision(0, "peek"+limit+"k", "k would be granted 0 5 5 -")
		s.prints(0, "", "list")
		decision(0, "hit -n 2"+limit+"k", "k allowed 2 5 3 1m")
		decision(0, "hit --scale=60s --limit 5 k other", "k allowed 3 5 2 1m", "other allowed 1 5 4 1m")
		decision(0, "hit --name api"+limit+"k", "k allowed 1 5 4 1m")
		decision(1, "take -n 3"+limit+"new k", "new not taken 0 5 5 -", "k refused 3 5 2 1m")
		decision(0, "take -n 2"+limit+"k", "k granted 5 5 0 1m")
		decision(1, "peek"+limit+"k", "k would be refused 5 5 0 1m")
		decision(1, "wait --timeout 20s"+limit+"new k never", "new granted 1 5 4 1m", "k refused 0 5 0 1m")
		decision(1, "hit -n 3 --scale 1m --limit 3 k", "k denied "+map[bool]string{true: "8", false: "5"}[redis]+" 3 0 1m")
		_, out, _ := s.run("", strings.Split("take --json -n 6"+limit+"k", " ")...)
		require.Equal(t, `{"key":"k","allowed":false,"count":0,"limit":5,"remaining":0}`+"\n", out)
		_, out, _ = s.run("", strings.Split("take --json -n 3"+limit+"new k", " ")...)
		require.Regexp(t, `^\{"key":"new","allowed":false,"count":1,.*\n\{"key":"k","allowed":false,`, out, "one refuses: nothing is taken")
		_, out, _ = s.run("", strings.Split("peek --json"+limit+"k", " ")...)
		require.Regexp(t, `^\{"key":"k","allowed":false,"count":\d,"limit":5,"remaining":0,"retry_after_seconds":[45]\d\.\d+,"reset_at":"20[^"]+Z"\}\n$`, out)
		if redis {
			decision(0, "take --algorithm token-bucket --burst 8 -n 6 --scale 24h --limit 4 k", "k granted 6 8 2 36h")
		} else {
			s.fails("take --algorithm token-bucket --scale 1m --limit 4 k", "unsupported")
			s.fails("hit --scale 1m --limit 4294967296 k", "Max 4294967296 is out of range", "uint64")
		}
	})
}

func TestCountsAreListedAndForgotten(t *testing.T) {
	forStores(t, func(t *testing.T, s shell, redis bool) {
		long := strings.Repeat("x", 70) + strings.Repeat("y", 60)
		for _, line := range []string{
			"--scale 1m --limit 4 user:1", "--scale 1h --name api --limit 8 user:1", "--scale 1m --limit 4 -n 4 user:2", "--scale 1h --name login --limit 9 " + long,
		} {
			s.does("take " + line)
		}
		listed := func(status int, line string) (keys []string) {
			t.Helper()
			got, out, stderr := s.run("", strings.Split("list --json "+line, " ")...)
			require.Equal(t, status, got, stderr)
			for row := range strings.Lines(out) {
				var c counted
				require.NoError(t, json.Unmarshal([]byte(row), &c))
				keys = append(keys, c.Key+"/"+c.Name)
			}
			return keys
		}
		require.Len(t, listed(0, "--name login"), map[bool]int{true: 1, false: 0}[redis], "of a long key a server has a digest, without the name")
		require.ElementsMatch(t, []string{"user:1/", "user:1/api"}, listed(0, "user:1"))
		require.ElementsMatch(t, []string{"user:1/", "user:1/api", "user:2/"}, listed(0, "--prefix user:"))
		require.ElementsMatch(t, []string{"user:1/", "user:2/"}, listed(0, "--scale 1m"))
		require.ElementsMatch(t, []string{"user:1/", "user:2/"}, listed(0, "--name= --prefix user --algorithm fixed-window"))
		require.Empty(t, listed(1, "nobody"))
		max, used := unknown, unknown
		if redis {
			max, used = "4", "100%"
		}
		s.prints(0, "key name count max used in algorithm ends in\nuser:2 - 4 "+max+" "+used+" 1m fixed-window 1m\n", "list user:2")
		s.prints(0, "key name count max used in algorithm ends in\nuser:2 - 4 4 100% 1m fixed-window 1m\n", "list --limit 4 user:2")
		out := s.does("list")
		require.Contains(t, out, " (digest)  ")
		require.NotContains(t, out, long)

		s.prints(1, "key name count in algorithm result\nuser:1 api 1 1h fixed-window forgotten\nnobody - 0 - - nothing was counted\n", "forget --name api user:1 nobody")
		require.Equal(t, []string{"user:1/"}, listed(0, "user:1"))
		s.prints(0, "key name count in algorithm result\nuser:1 - 1 1m fixed-window forgotten\n", "forget user:1")
		require.Empty(t, listed(1, "user:1"))
		s.prints(1, `{"key":"user:1","forgotten":false,"count":0}`+"\n", "forget --json user:1")
		cut := long[:59] + "…"
		byLimit := "forget --name login --scale 1h " + long
		if redis { // it finds the digest by the key, and forgets the count of the key
			s.prints(0, "key name count in algorithm result\n"+cut+" login 1 1h fixed-window forgotten\n", "forget "+long)
			s.prints(1, "key name count in algorithm result\n"+cut+" - 0 - - nothing was counted\n", byLimit)
			s.does("take --scale 1h --name login --limit 9 " + long)
		}
		s.prints(0, "key name count in algorithm result\n"+cut+" login 1 1h fixed-window forgotten\n", byLimit)
		s.prints(1, "key name count in algorithm result\n"+cut+" - 0 - - nothing was counted\n", "forget --name login --scale 1h "+long)
		s.fails("forget --scale 1us user:2", "less than 1ms")
		require.Equal(t, []string{"user:2/"}, listed(0, "--scale 1m"), "of others nothing was forgotten")
	})
}

func TestUnitsAreGivenBack(t *testing.T) {
	forStores(t, func(t *testing.T, s shell, redis bool) {
		gives := func(status int, line, row string) {
			t.Helper()
			s.prints(status, "key name count in algorithm result\n"+row+"\n", "give-back "+line)
		}
		s.does("take --name tokens --scale 1h --limit 100 -n 80 k")
		s.does("take --name mails --scale 1h --limit 2 -n 2 k")
		gives(0, "--name tokens -n 50 k", "k tokens 30 1h fixed-window 50 given back")
		gives(0, "--scale 1h --name mails k", "k mails 1 1h fixed-window 1 given back")
		s.fails("give-back k", "k has 2 counts", "--name")
		gives(0, "--name tokens -n 50 k", "k tokens 0 1h fixed-window 30 given back")
		gives(1, "--name tokens k", "k tokens 0 1h fixed-window 0 given back")
		gives(1, "--scale 1h nobody", "nobody - 0 - - nothing was counted")
		long := strings.Repeat("k", 300)
		s.does("take --name login --scale 1h --limit 9 -n 4 " + long)
		gives(0, "--name login --scale 1h -n 3 "+long, long[:59]+"… login 1 1h fixed-window 3 given back")
		if redis {
			s.does("take --calendar month --limit 9 -n 9 month")
			gives(0, "--calendar month -n 4 month", "month - 5 month calendar-window 4 given back")
			s.does("take --algorithm token-bucket --scale 1h --limit 9 bucket")
			s.fails("give-back bucket", "a token-bucket gets its room back by itself")
		}
	})
}

func TestWhatIsUnknownPrintsAsUnknown(t *testing.T) {
	t.Parallel()
	c := throttr.Listed{Key: "k", Limit: throttr.Limit{Algorithm: 99, Calendar: 9}, Window: window.Window{Count: 3, Left: time.Second}}
	require.Equal(t, []any{"k", "-", uint64(3), unknown, unknown, "calendar unit 9", throttr.Algorithm(99), "1s"}, countFields(&c))
	line, err := json.Marshal(countedOf(&c))
	require.NoError(t, err)
	require.Equal(t, `{"key":"k","algorithm":"algorithm 99","calendar":"calendar unit 9","count":3,"ends_in_seconds":1}`, string(line))
	c.Limit = throttr.Limit{Algorithm: throttr.CalendarWindow, Calendar: throttr.Month, Zone: "Europe/Berlin", StartDay: 17, Max: 4, Burst: 6}
	require.Equal(t, []any{"k", "-", uint64(3), "4 (holds 6)", "50%", "month from day 17 of Europe/Berlin", throttr.CalendarWindow, "1s"}, countFields(&c))
	for d, want := range map[time.Duration]string{throttr.Never: "never", 90*time.Second + 1: "1m31s", time.Minute: "1m", 1234567: "1.2ms", 0: "0s", 26 * time.Hour: "26h"} {
		require.Equal(t, want, left(d))
	}
}

// parsed returns flags of a limit.
func parsed(t *testing.T, line string) *limitFlags {
	f := newFlags(&env{out: newOutput(io.Discard)})
	l := limitFlagsOf(f)
	_, err := f.parse(strings.Fields(line))
	require.NoError(t, err)
	return l
}

func TestCalendarFlagsReachTheLimit(t *testing.T) {
	t.Parallel()
	l := parsed(t, "--calendar month --zone Europe/Berlin --start-day 17 --limit 9")
	limit, err := l.limit()
	require.NoError(t, err)
	want := throttr.Limit{Max: 9, Calendar: throttr.Month, Zone: "Europe/Berlin", StartDay: 17, Algorithm: throttr.CalendarWindow}
	require.Equal(t, want, limit)
	require.True(t, l.matches(want))
	week, zone, day := want, want, want
	week.Calendar = throttr.Week
	zone.Zone = "UTC"
	day.StartDay = 1
	for _, o := range []throttr.Limit{week, zone, day} {
		require.False(t, l.matches(o), "%+v", o)
	}
}

func TestHoldersOfPlaces(t *testing.T) {
	s := onRedis(t)
	s.prints(1, "", "holders")
	b, err := throttr.Open(t.Context(), s.store)
	require.NoError(t, err)
	defer b.Close()
	places := inflight.New(b)
	defer places.Close()
	_, err = places.Acquire(t.Context(), "user:42", inflight.Limit{Name: "exports", Max: 3}, 2)
	require.NoError(t, err)
	for _, line := range []string{"holders", "holders user:42", "holders --name exports user:42"} {
		require.Regexp(t, `^key name used process held waiting lease ends in\nuser:42 exports 2 \S+ 2 0 (30|[12]\d)s\n$`, plainly(s.does(line)))
	}
	require.Regexp(t, `^\{"key":"user:42","name":"exports","used":2,"process":"[^"]+","held":2,"waiting":0,"lease_ends_in_seconds":(30|[12]\d)\.\d+\}\n$`, s.does("holders --json"))
	s.prints(1, "", "holders --name other")
	s.prints(1, "", "holders user:43")
	others := inflight.New(b)
	defer others.Close()
	go others.Acquire(t.Context(), "user:42", inflight.Limit{Name: "exports", Max: 3}, 2)
	require.Eventually(t, func() bool {
		_, out, _ := s.run("", "holders")
		return strings.Contains(plainly(out), " 0 1 -\n")
	}, 10*time.Second, 10*time.Millisecond, "that waits, and has no lease")
	servers, _ := shellFor(t, 2)
	servers.fails("holders", "places in flight are not kept on this store")
}

func TestKeysAreThoseOfHTTPLimit(t *testing.T) {
	t.Parallel()
	b := memory.New()
	defer b.Close()
	m, err := httplimit.NewMiddleware(throttr.NewRateLimit(b), httplimit.Config{Limits: []throttr.Limit{httplimit.PerMinute(1)}})
	require.NoError(t, err)
	for line, k := range map[string]httplimit.Key{
		"key --header x-api-key secret": {Text: httplimit.HeaderKey("X-Api-Key", "secret")},
		"key customer:7":                {Text: "customer:7"},
		"key --plain 192.0.2.1":         {Text: "192.0.2.1", Plain: true},
		"key --plain 192.0.2.1:4711":    {Text: "192.0.2.1", Plain: true},
		"key --plain 2001:db8::1":       {Text: "2001:db8::/64", Plain: true},
		"key --plain customer:7":        {Text: "customer:7", Plain: true},
	} {
		shell{t, ""}.prints(0, m.StoredKey(k)+"\n", line)
	}
	_, _, stderr := shell{t, ""}.run(strings.Repeat("x", maxStdin+1), "key", "-")
	require.Equal(t, "throttr key: standard input: longer than 1048576 bytes\n", stderr, "and not the key of its beginning")
	_, out, _ := shell{t, ""}.run("secret\n", "key", "--header", "X-Api-Key", "-")
	require.Equal(t, m.StoredKey(httplimit.Key{Text: httplimit.HeaderKey("X-Api-Key", "secret")})+"\n", out)
}

func TestDurationsHaveDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "-2d": -2 * day, "0d": 0, "36h": 36 * time.Hour, "90s": 90 * time.Second, "106751d": 106751 * day,
	} {
		got, err := parseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"d", "1dd", "1d12h", "1.5d", "106752d", "-106752d", "day", "--1d", "0x1d", "infd", "99999999999999999999d"} {
		_, err := parseDuration(text)
		require.EqualError(t, err, "not a duration such as 60s, 1h30m or 7d", text)
	}
}

func TestScalesAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Second: "1s", 70 * time.Second: "1m10s",
		200 * time.Millisecond: "200ms", time.Hour + time.Second: "1h0m1s", 0: "0s",
	} {
		require.Equal(t, want, formatScale(d))
	}
}

// topOf returns a top of a backend, with these flags of a limit.
func topOf(t *testing.T, b throttr.Backend, line string) *top {
	return &top{limit: parsed(t, line), b: b, every: 2 * time.Second, shown: 3}
}

// counter counts the calls of a backend. It lists each count twice.
type countingBackend struct {
	*memory.Backend
	lists int
	takes time.Duration // of a list
	err   error
}

func (b *countingBackend) List(ctx context.Context, keys ...string) iter.Seq2[throttr.Listed, error] {
	b.lists++
	time.Sleep(b.takes)
	return func(yield func(throttr.Listed, error) bool) {
		if b.err != nil {
			yield(throttr.Listed{}, b.err)
			return
		}
		for range 2 {
			for l, err := range b.Backend.List(ctx, keys...) {
				if !yield(l, err) {
					return
				}
			}
		}
	}
}

func TestFullestCountsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		defer m.Close()
		b := &countingBackend{Backend: m, takes: 500 * time.Millisecond}
		limiter, ctx := throttr.NewRateLimit(b), t.Context()
		for i := range 100 {
			_, err := limiter.HitN(ctx, fmt.Sprint("k", i), throttr.Limit{Max: 100, Scale: time.Hour}, uint64(i))
			require.NoError(t, err)
		}
		_, err := limiter.HitN(ctx, "small", throttr.Limit{Name: "api", Max: 2, Scale: time.Minute}, 2)
		require.NoError(t, err)
		top := topOf(t, b, "")
		require.NoError(t, top.read(ctx))
		keys := func(n int) (all []string) {
			for _, f := range top.open(n) {
				all = append(all, f.Key+" "+f.rateText())
			}
			return all
		}
		require.Equal(t, []string{"small unknown", "k99 unknown", "k98 unknown"}, keys(3))
		require.Equal(t, 2*101, top.all, "the store lists each twice")

		// Until 20 times as long as a list has passed, only the fullest are read.
		_, err = limiter.HitN(ctx, "k97", throttr.Limit{Max: 100, Scale: time.Hour}, 3)
		require.NoError(t, err)
		for range 4 {
			time.Sleep(2 * time.Second)
			require.NoError(t, top.read(ctx))
		}
		require.Equal(t, 1, b.lists)
		require.Equal(t, []string{"k97 0", "small 0", "k99 0"}, keys(3), "by the rates since the last reading")
		require.InDelta(t, 1./pauses, top.cost(), 0.001)
		require.Contains(t, top.costText(), "202 counts, read in 500ms every 10s; the fullest 6 in 0s every 2s: at most 5.0% of the store's time")
		time.Sleep(2 * time.Second)
		require.NoError(t, top.read(ctx))
		require.Equal(t, 2, b.lists)

		// What is over is not shown, and comes back with its next window.
		time.Sleep(time.Minute)
		require.NoError(t, top.readFullest(ctx))
		require.NotContains(t, strings.Join(keys(6), ","), "small")
		_, err = limiter.HitN(ctx, "small", throttr.Limit{Name: "api", Max: 2, Scale: time.Minute}, 2)
		require.NoError(t, err)
		require.NoError(t, top.readFullest(ctx))
		require.Contains(t, strings.Join(keys(6), ","), "small")
		b.err = errors.New("away")
		time.Sleep(time.Minute)
		require.ErrorIs(t, top.read(ctx), b.err)

		_, err = limiter.HitN(ctx, "small", throttr.Limit{Name: "api", Max: 2, Scale: time.Minute}, 2)
		require.NoError(t, err)
		only := topOf(t, m, "--name api")
		require.NoError(t, only.read(ctx))
		require.Len(t, only.fullest, 1)
		lines := only.lines(5, 40)
		require.Len(t, lines, 4)
		for _, line := range lines {
			require.LessOrEqual(t, len([]rune(line)), 40)
		}
		require.True(t, strings.HasSuffix(lines[3], "…"))
	})
}

// Rates are right for windows of all lengths, longer and shorter than the time between two readings.
func TestRatesOfWindowsThatEndBetweenReadings(t *testing.T) {
	for _, a := range []throttr.Algorithm{throttr.FixedWindow, throttr.AlignedWindow, throttr.SlidingWindow, throttr.SlidingLog} {
		for _, scale := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				defer b.Close()
				limiter, ctx := throttr.NewRateLimit(b), t.Context()
				top := topOf(t, b, "")
				sum, readings := 0.0, 0
				for i := range 4000 { // a hundred a second
					_, err := limiter.Take(ctx, "k", throttr.Limit{Max: 10_000, Scale: scale, Algorithm: a}, 1)
					require.NoError(t, err)
					time.Sleep(10 * time.Millisecond)
					if i%207 == 200 {
						require.NoError(t, top.read(ctx))
						if f := top.open(1); i > 300 && len(f) == 1 && f[0].rate != nil {
							sum += *f[0].rate
							readings++
						}
					}
				}
				want := 100.
				if a.Rolling() && scale > 2*time.Second { // then by how much the count changes: it grows for a scale
					want = 100 * min(scale.Seconds(), 38) / 38
				}
				require.Greater(t, readings, 12)
				require.InDelta(t, want, sum/float64(readings), 12, "%v of %v", a, scale)
			})
		}
	}
}

func TestCountsThatStartAgain(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 10, 0, time.UTC)
	f := followed{Listed: throttr.Listed{Limit: throttr.Limit{Scale: time.Minute, Algorithm: throttr.FixedWindow}}, read: start}
	f.Window = window.Window{Count: 50, Left: 30 * time.Second}
	require.Equal(t, unknown, f.rateText())
	f.update(window.Window{Count: 70, Left: 20 * time.Second}, start.Add(10*time.Second))
	require.Equal(t, "2.0", f.rateText())
	f.update(window.Window{Count: 5, Left: 59 * time.Second}, start.Add(20*time.Second))
	require.Equal(t, "2.0", f.rateText(), "a second of a minute is too short for a rate")
	f.update(window.Window{Count: 300, Left: 30 * time.Second}, start.Add(90*time.Second))
	require.Equal(t, "10", f.rateText(), "300 in the half minute since the window has opened")
	f.update(window.Window{}, start.Add(3*time.Minute))
	f.update(window.Window{Count: 1, Left: 59 * time.Second}, start.Add(5*time.Minute))
	require.Equal(t, "10", f.rateText())
}

func TestTopPrintsViews(t *testing.T) {
	forStores(t, func(t *testing.T, s shell, redis bool) {
		s.does("take --scale 1h --limit 4 -n 3 a")
		s.does("take --scale 1h --limit 4 -n 1 b")
		require.Regexp(t, `(?m)^\d\d:\d\d:\d\d  2 counts, read in .* at most .*% of the store's time

key name count max used in algorithm ends in change/s
a - 3 4 75% 1h fixed-window 1h 0
b - 1 4 25% 1h fixed-window 1h 0
`, strings.Replace(plainly(s.does("top --once --every 100ms --limit 4")), " ", "  ", 1))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var printed, errs bytes.Buffer
		require.Zero(t, run(ctx, strings.Split("top --json --every 200ms -n 1 --store "+s.store, " "), nil, &printed, &errs), errs.String())
		lines := strings.Split(strings.TrimSpace(printed.String()), "\n")
		require.Greater(t, len(lines), 3)
		for i, line := range lines {
			var v view
			require.NoError(t, json.Unmarshal([]byte(line), &v))
			require.Equal(t, 2, v.Counts)
			require.Len(t, v.Top, 1)
			require.Equal(t, i > 0, v.Top[0].Rate != nil)
			require.Equal(t, redis, v.Top[0].Used != nil, "a server does not know Max")
		}
	})
}
