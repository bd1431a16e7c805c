package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
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
