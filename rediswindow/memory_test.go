package rediswindow_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// client is a client of one connection, which has one request at a time.
type client struct {
	mu   *sync.Mutex
	conn *bufio.ReadWriter
}

func connect(t *testing.T, s *testkit.Redis) client {
	conn, err := net.Dial(s.Network, s.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return client{&sync.Mutex{}, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))}
}

func (c client) EvalSHA(_ context.Context, digest string, keys, args []string) (string, error) {
	return c.do("EVALSHA", digest, keys, args)
}

func (c client) Eval(_ context.Context, script string, keys, args []string) (string, error) {
	return c.do("EVAL", script, keys, args)
}

func (c client) do(command, script string, keys, args []string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Concat([]string{command, script, strconv.Itoa(len(keys))}, keys, args)
	fmt.Fprintf(c.conn, "*%d\r\n", len(all))
	for _, arg := range all {
		fmt.Fprintf(c.conn, "$%d\r\n%s\r\n", len(arg), arg)
	}
	c.conn.Flush()
	line, err := c.conn.ReadString('\n')
	size, isString := strings.CutPrefix(strings.TrimSpace(line), "$")
	if err != nil || !isString {
		return "", cmp.Or(err, errors.New(strings.TrimPrefix(line, "-")))
	}
	n, err := strconv.Atoi(size)
	reply := make([]byte, max(n, 0)+len("\r\n"))
	if err == nil {
		_, err = io.ReadFull(c.conn, reply)
	}
	return string(reply[:len(reply)-len("\r\n")]), err
}

func (c client) Scan(context.Context, string) iter.Seq2[string, error] { return nil }
func (c client) Cluster() (bool, error)                                { return false, nil }
func (c client) Name() string                                          { return "redis" }

// same makes the same calls on two backends.
type same struct {
	*testing.T
	*rand.Rand
	memory, redis window.Backend
	limits        map[string]window.Limit // by key and count: Max and Burst as last used
	taken         []granted
	call          int
}

// granted is a take that may be given back.
type granted struct {
	window.Take
	inMemory, inRedis int64 // the IDs
}

// take returns a take of a count. Now and then its Max and Burst are others than before.
func (s *same) take() window.Take {
	l := window.Limit{
		Name: []string{"", "n"}[s.IntN(2)], Scale: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[s.IntN(3)],
		Algorithm: window.Algorithm(1 + s.IntN(int(window.CalendarWindow))),
	}
	if l.Algorithm == window.CalendarWindow {
		l.Scale = 0
		l.Calendar = window.Calendar(1 + s.IntN(int(window.Year)))
		l.Zone = []string{"", "America/Havana"}[s.IntN(2)]
	}
	key := fmt.Sprint("k", s.IntN(4))
	count := fmt.Sprint(key, l)
	last, known := s.limits[count]
	if known && s.IntN(10) > 0 {
		l = last
	} else {
		l.Max = []uint64{1, 4, 5, 7, 9, 100}[s.IntN(6)]
		if l.Algorithm == window.TokenBucket && s.IntN(2) == 0 {
			l.Burst = []uint64{1, 3, 11, 200}[s.IntN(4)]
		}
	}
	n := 1 + s.Uint64N(3)
	if s.IntN(20) == 0 {
		n = 1 + s.Uint64N(12)
	}
	return l.For(key, n)
}

// used notes the Max and Burst of a call that is not Peek, which changes nothing.
func (s *same) used(t window.Take) {
	l := t.Limit
	l.Max, l.Burst = 0, 0
	s.limits[fmt.Sprint(t.Key, l)] = t.Limit
}

// do makes a call on both.
func (s *same) do(what string, t window.Take, call func(b window.Backend) (window.Window, error)) {
	inMemory, err := call(s.memory)
	require.NoError(s, err)
	inRedis, err := call(s.redis)
	require.NoError(s, err)
	s.equal(what, t, inMemory, inRedis)
	if what == "take" && !inMemory.Refused {
		s.taken = append(s.taken, granted{t, inMemory.ID, inRedis.ID})
	}
}

// equal requires windows to be equal, but for their IDs and the rounding of times.
func (s *same) equal(what string, t window.Take, inMemory, inRedis window.Window) {
	s.Helper()
	retry := func(w window.Window) time.Duration {
		if w.Refused && w.RetryAfter == 0 {
			return w.Left
		}
		return w.RetryAfter
	}
	near := func(x, y time.Duration) bool { return x-y <= time.Microsecond && y-x <= time.Microsecond }
	if inMemory.Refused != inRedis.Refused || inMemory.Count != inRedis.Count || !near(inMemory.Left, inRedis.Left) || !near(retry(inMemory), retry(inRedis)) {
		s.Fatalf("call %d: %s %v\n  memory %+v\n  Redis  %+v", s.call, what, t, inMemory, inRedis)
	}
}

func (s *same) giveBack() {
	if len(s.taken) == 0 {
		return
	}
	i := max(0, len(s.taken)-1-s.IntN(8))
	g := s.taken[i]
	s.taken = append(s.taken[:i], s.taken[i+1:]...)
	inMemory, err := s.memory.GiveBack(s.Context(), g.Key, g.Limit, g.N, g.inMemory)
	require.NoError(s, err)
	inRedis, err := s.redis.GiveBack(s.Context(), g.Key, g.Limit, g.N, g.inRedis)
	require.NoError(s, err)
	require.Equal(s, inMemory, inRedis, "call %d: give back %+v", s.call, g)
	s.peek(g.Take)
}

// peek looks at a window, under the limit last used.
func (s *same) peek(t window.Take) {
	s.do("peek", t, func(b window.Backend) (window.Window, error) { return b.Peek(s.Context(), t.Key, t.Limit, t.N) })
}

// takeAll makes several takes of different counts. If they are refused, no Max changes.
func (s *same) takeAll() {
	var takes []window.Take
	for size := 2 + s.IntN(3); len(takes) < size; {
		if t := s.take(); !slices.ContainsFunc(takes, func(u window.Take) bool { return limits.SameCount(&t, &u) }) {
			takes = append(takes, t)
		}
	}
	inMemory, inRedis := make([]window.Window, len(takes)), make([]window.Window, len(takes))
	one, err := s.memory.TakeAll(s.Context(), takes, inMemory)
	require.NoError(s, err)
	other, err := s.redis.TakeAll(s.Context(), takes, inRedis)
	require.NoError(s, err)
	require.Equal(s, one, other, "call %d: %v", s.call, takes)
	for i, t := range takes {
		s.equal("take all", t, inMemory[i], inRedis[i])
		if one {
			s.used(t)
			s.taken = append(s.taken, granted{t, inMemory[i].ID, inRedis[i].ID})
		}
	}
}

// next makes a call.
func (s *same) next() {
	s.call++
	t := s.take()
	switch x := s.IntN(100); {
	case x < 40:
		s.used(t)
		s.do("take", t, func(b window.Backend) (window.Window, error) { return b.Take(s.Context(), t.Key, t.Limit, t.N) })
	case x < 55:
		s.used(t)
		s.do("hit", t, func(b window.Backend) (window.Window, error) { return b.Hit(s.Context(), t.Key, t.Limit, t.N) })
	case x < 65:
		l := t.Limit
		l.Max, l.Burst = 0, 0
		if last, ok := s.limits[fmt.Sprint(t.Key, l)]; ok {
			t.Limit = last
		}
		t.N--
		s.peek(t)
	case x < 70:
		s.used(t)
		s.do("charge", t, func(b window.Backend) (window.Window, error) { return b.Charge(s.Context(), t.Key, t.Limit, t.N) })
	case x < 72:
		s.used(t)
		s.do("set", t, func(b window.Backend) (window.Window, error) { return b.Set(s.Context(), t.Key, t.Limit, t.N) })
	case x < 73:
		s.used(t)
		require.NoError(s, s.memory.Reset(s.Context(), t.Key, t.Limit))
		require.NoError(s, s.redis.Reset(s.Context(), t.Key, t.Limit))
		s.peek(t)
	case x < 85:
		s.takeAll()
	default:
		s.giveBack()
	}
}

// Redis decides as memory does, whatever is called: all algorithms, give-backs, several takes, and a Max and a Burst
// that change. THROTTR_RANDOM_CALLS is how many calls are made.
func TestRandomCallsAgreeWithMemory(t *testing.T) {
	calls := 4000
	if n, err := strconv.Atoi(os.Getenv("THROTTR_RANDOM_CALLS")); err == nil {
		calls = n
	}
	now := time.UnixMicro(1_893_456_000_000_000)
	clock := func() time.Time { return now }
	s := &same{
		T: t, Rand: rand.New(rand.NewPCG(1, uint64(calls))), limits: map[string]window.Limit{},
		memory: memory.New(memory.WithClock(clock)), redis: rediswindow.New(connect(t, testkit.StartRedis(t)), rediswindow.WithClock(clock)),
	}
	for range calls {
		s.next()
		if s.IntN(3) == 0 {
			now = now.Add(time.Duration(s.IntN(400_000)) * time.Microsecond)
		}
		if s.IntN(150) == 0 {
			now = now.Add(time.Duration(s.IntN(30)) * time.Second)
		}
		if s.IntN(300) == 0 {
			now = now.Add(time.Duration(s.IntN(60)) * time.Hour)
		}
	}
}

// gate is a client whose first request waits.
type gate struct {
	client
	once  sync.Once
	first chan struct{}
}

func (g *gate) EvalSHA(ctx context.Context, digest string, keys, args []string) (string, error) {
	g.once.Do(func() { <-g.first })
	return g.client.EvalSHA(ctx, digest, keys, args)
}

// Equal calls share an entry of a request. Each has a place and an ID of its own, under which it is given back.
func TestEqualTakesAreGivenBackEachForItself(t *testing.T) {
	s := testkit.StartRedis(t)
	now := time.UnixMicro(1_893_456_000_000_000)
	for a := window.FixedWindow; a <= window.SlidingLog; a++ {
		g := &gate{client: connect(t, s), first: make(chan struct{})}
		b := rediswindow.New(g, rediswindow.WithClock(func() time.Time { return now }), rediswindow.WithPrefix(a.String()))
		l := window.Limit{Max: 7, Scale: time.Hour, Algorithm: a}
		const calls = 10 // of 1, of which 7 fit
		windows := make([]window.Window, calls)
		var all sync.WaitGroup
		all.Go(func() { b.Peek(t.Context(), "other", l, 0) })
		time.Sleep(10 * time.Millisecond)
		for i := range windows {
			all.Go(func() { windows[i], _ = b.Take(t.Context(), "k", l, 1) })
		}
		time.Sleep(50 * time.Millisecond)
		close(g.first)
		all.Wait()
		counts := map[uint64]window.Window{}
		for _, w := range windows {
			if !w.Refused {
				counts[w.Count] = w
			}
		}
		require.Len(t, counts, 7, "%v: %+v", a, windows)
		for _, count := range []uint64{7, 6} {
			done, err := b.GiveBack(t.Context(), "k", l, 1, counts[count].ID)
			require.NoError(t, err)
			require.True(t, done, "%v: %d", a, count)
		}
		w, err := b.Peek(t.Context(), "k", l, 0)
		require.NoError(t, err)
		require.Equal(t, uint64(5), w.Count, a)
		if a == window.TokenBucket { // by then the first ones have come back
			now = now.Add(2 * time.Hour / 7)
			done, err := b.GiveBack(t.Context(), "k", l, 1, counts[1].ID)
			require.NoError(t, err)
			require.False(t, done)
		}
	}
}
