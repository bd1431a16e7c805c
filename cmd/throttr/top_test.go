package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/mockserver"
)

func TestLimitsOfTopHaveAScale(t *testing.T) {
	t.Parallel()
	l := limits{}
	require.NoError(t, l.add("100/1m"))
	require.NoError(t, l.add("0/1d"))
	require.Equal(t, limits{time.Minute: 100, 24 * time.Hour: 0}, l)
	require.InDelta(t, 1.5, l.usage(time.Minute, 150), 0)
	require.Zero(t, l.usage(24*time.Hour, 150))
	require.Zero(t, l.usage(time.Hour, 150))
	require.EqualValues(t, 30, l.over(time.Minute, 120, 150))
	require.EqualValues(t, 50, l.over(time.Minute, 20, 150))
	require.Zero(t, l.over(time.Minute, 20, 100))
	require.Zero(t, l.over(time.Hour, 20, 150))
	for text, want := range map[string]string{"100": "not of the form", "-1/1m": "not of the form", "1/60": "needs a unit", "1/0s": "0s"} {
		require.ErrorContains(t, l.add(text), want)
	}
	s := shell{t, ""}
	s.fails("top --limit 100", `"100" is not of the form 100/1m`)
	s.fails("top --every 1ms", "--every 1ms is less than 100ms")
	s.fails("top --sample 0", "--sample 0")
	s.fails("top x", "places in flight, which are on Redis")
	s.fails("top --name exports", "places in flight, which are on Redis")
	s.fails("--servers redis://127.0.0.1:1 top", "on Redis", "name them")
	s.fails("--servers redis://127.0.0.1:1 top --limit 1/1m x", "--limit is for Throttr servers")
	s.fails("--servers redis://127.0.0.1:1 top x", "127.0.0.1:1", "refused")
}

func TestRatesOfAWindowAreThoseSinceItWasSeen(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 10, 0, time.UTC)
	name, ok := fixedwindow.ParseName([]byte("wsA:1m0s:k"))
	require.True(t, ok)
	bands, _ := slot.BandsFor(time.Minute, 255)
	l := limits{time.Minute: 10}
	w := topWindow{name: name}
	see := func(count uint64, at, left time.Duration) {
		ttl := time.Duration(bands.Margin)*bands.Unit + left
		w.update(counter{found: true, quota: 255 - count, unit: codec.Seconds, ttl: ttl}, 255, start.Add(at), l)
	}
	see(8, 0, 50*time.Second)
	require.True(t, w.open)
	require.Zero(t, w.rate, "it is not known since when")
	see(16, 2*time.Second, 48*time.Second)
	require.InDelta(t, 4, w.rate, 1e-9)
	require.InDelta(t, 3, w.over, 1e-9)
	require.Equal(t, start.Add(51*time.Second), w.ends, "the TTL is rounded down")
	see(17, time.Minute, -time.Second)
	require.False(t, w.open, "it has ended")
	require.Zero(t, w.rate)
	see(3, 61*time.Second, 59*time.Second)
	require.InDelta(t, 3, w.rate, 1e-9, "a new window")
}

func TestTopShowsKeysNearestToTheirLimits(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		a, srvA := shellFor(t, size)
		b, srvB := shellFor(t, size)
		s := shell{t, a.servers + "," + b.servers}
		s.yes("hit --scale 1m --limit 20 -n 15 near")
		s.yes("hit --scale 1m --limit 20 -n 4 far")
		s.yes("hit --scale 20s --limit 90 -n 30 unknown")
		s.yes("insert --ttl 1h jobs 5")
		out := s.yes("top --once --every 100ms --limit 20/1m")
		require.Regexp(t, `^\d\d:\d\d:\d\d  every 100ms  limits 20/1m

server +req/s +hits/s +over/s +records +open +conns +bytes
127\S+ +\d+ +0 +0 +\d+ +\d +\d+ +\d+
127\S+ +\d+ +0 +0 +\d+ +\d +\d+ +\d+
this costs \d+\.\d\d % of a server's time

key +scale +count +limit +used +hits/s +ends in
near +1m +15 +20 +75% +0 +(\d+s|1m)
far +1m +4 +20 +20% +0 +(\d+s|1m)
unknown +20s +30 +- +- +0 +\d+s
$`, out)
		require.NotContains(t, s.yes("top --once --every 100ms -n 1"), "far")

		var got view
		require.NoError(t, json.Unmarshal([]byte(s.yes("top --once --json --every 100ms --limit 20/1m")), &got))
		require.Len(t, got.Servers, 2)
		require.Equal(t, 3, got.Servers[0].Windows+got.Servers[1].Windows)
		require.NotNil(t, got.Servers[0].Requests)
		require.Len(t, got.Keys, 3)
		require.Equal(t, "near", got.Keys[0].Key)
		require.EqualValues(t, 15, got.Keys[0].Count)
		require.EqualValues(t, 20, *got.Keys[0].Limit)
		require.Nil(t, got.Keys[2].Limit)
		require.Positive(t, got.Cost)

		inserts := srvA.Requests(codec.OpInsert) + srvB.Requests(codec.OpInsert)
		lists := srvA.Requests(codec.OpList)
		s.yes("top --once --every 100ms")
		require.LessOrEqual(t, srvA.Requests(codec.OpInsert)+srvB.Requests(codec.OpInsert)-inserts, 8, "only to detect the value size")
		require.LessOrEqual(t, srvA.Requests(codec.OpList)-lists, 2)
	})
}

func TestTopReadsNoMoreWindowsThanTheSample(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 4)
	for i := range 30 {
		s.yes("hit --scale 1m --limit 100 -n " + number(i+1) + " user:" + number(i))
	}
	before := srv.Requests(codec.OpQuery)
	out := s.yes("top --once --every 100ms --sample 10 --limit 100/1m")
	require.LessOrEqual(t, srv.Requests(codec.OpQuery)-before, 2*10+6, "one for each window, and those that detect the value size")
	require.Contains(t, out, "records of windows, 10 were read\n")
}

func TestTopPrintsOneViewAfterTheOther(t *testing.T) {
	t.Parallel()
	a, b := mockserver.RunT(t), mockserver.RunT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out lockedBuffer
	status := make(chan int)
	go func() {
		status <- run(ctx, []string{"top", "--every", "100ms", "--servers", a.Addr() + "," + b.Addr()}, strings.NewReader(""), &out, &out)
	}()
	require.Eventually(t, func() bool { return strings.Count(out.String(), "no limits known") >= 2 }, 10*time.Second, 10*time.Millisecond)
	away := regexp.MustCompile(`(?m)^` + b.Addr() + ` +[a-z]`)
	b.Refuse(true)
	b.Disconnect()
	require.Eventually(t, func() bool { return away.MatchString(out.String()) },
		10*time.Second, 10*time.Millisecond, "a server that is away does not end it")
	b.Refuse(false)
	views := strings.Count(out.String(), "no limits known")
	require.Eventually(t, func() bool { return strings.Count(out.String(), "no limits known") > views+2 }, 10*time.Second, 10*time.Millisecond)
	cancel()
	require.Zero(t, <-status, out.String())
	shell{t, "127.0.0.1:1"}.fails("top", "can't connect")
}

func TestViewFitsTheTerminal(t *testing.T) {
	t.Parallel()
	v := view{
		Time: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC), every: 2 * time.Second, limits: limits{time.Minute: 100},
		Servers: []sampled{
			{Server: "127.0.0.1:9000", Hits: new(float64), known: 5000, queries: 1000},
			{Server: "127.0.0.1:9001", err: errors.New("away"), Error: "throttr: " + strings.Repeat("long ", 40)},
		},
	}
	*v.Servers[0].Hits = 1e7
	for range 50 {
		v.Keys = append(v.Keys, topKey{keyed: keyOf(strings.Repeat("é", 100)), Scale: seconds(time.Minute), Count: 1 << 60, EndsIn: seconds(59 * time.Second)})
	}
	for _, size := range [][2]int{{80, 24}, {120, 50}, {40, 10}, {20, 3}, {1, 1}} {
		lines := v.lines(size[0], size[1], "  q: quit")
		require.LessOrEqual(t, len(lines), size[1])
		for _, line := range lines {
			require.LessOrEqual(t, utf8.RuneCountInString(line), size[0], line)
		}
	}
	require.Len(t, v.lines(80, 24, ""), 24)
	require.Len(t, v.lines(80, 0, ""), 8+50+1)
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{
		0: "0", 3: "3", 1.26: "1.3", 12.6: "13", 99_999: "99999", 100_000: "100k", 12_345_678: "12346k", 1e10: "10000M",
	} {
		require.LessOrEqual(t, len(short(f)), 6)
		if f < 1e6 {
			require.Equal(t, want, short(f))
		}
	}
	require.Equal(t, "many", short(1e30))
}

// It is drawn again after each sample and each change of the size, and ends with q.
func TestScreenShowsViewsUntilTheUserQuits(t *testing.T) {
	t.Parallel()
	samples := make(chan *view)
	s := newScreen(time.Millisecond, func(ctx context.Context) (frame, error) {
		select {
		case v := <-samples:
			return v, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	keys, user := io.Pipe()
	var out lockedBuffer
	ended := make(chan error)
	go func() {
		ended <- s.run(t.Context(), tea.WithInput(keys), tea.WithOutput(&out), tea.WithWindowSize(60, 10))
	}()
	for _, name := range []string{"first", "second"} {
		samples <- &view{Servers: []sampled{{Server: name}}}
		require.Eventually(t, func() bool { return strings.Contains(out.String(), name) }, 10*time.Second, time.Millisecond, name)
	}
	for line := range strings.Lines(s.View().Content) {
		require.LessOrEqual(t, ansi.StringWidth(line), 60)
	}
	_, err := io.WriteString(user, "q")
	require.NoError(t, err)
	require.NoError(t, <-ended)
}

func TestScreenEndsIfTheFirstSampleFails(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	s := newScreen(time.Second, func(context.Context) (frame, error) { return nil, away })
	require.ErrorIs(t, s.run(t.Context(), tea.WithInput(new(bytes.Buffer)), tea.WithOutput(io.Discard)), away)
}

func TestScreenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := newScreen(time.Second, func(ctx context.Context) (frame, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	require.NoError(t, s.run(ctx, tea.WithInput(new(bytes.Buffer)), tea.WithOutput(io.Discard)))
}

// lockedBuffer is a buffer that can be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
