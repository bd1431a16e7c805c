package rediswindow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// client is a client of one connection.
type client struct{ *testkit.Redis }

func (c client) EvalSHA(_ context.Context, digest string, keys, args []string) (string, error) {
	return c.do("EVALSHA", digest, keys, args)
}

func (c client) Eval(_ context.Context, script string, keys, args []string) (string, error) {
	return c.do("EVAL", script, keys, args)
}

func (c client) do(command, script string, keys, args []string) (string, error) {
	reply, err := c.Do(append(append([]string{command, script, strconv.Itoa(len(keys))}, keys...), args...)...)
	if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "redis: "))
	}
	return reply, err
}

func (c client) Ping(context.Context) error { return nil }
func (c client) Cluster() (bool, error)     { return false, nil }
func (c client) Name() string               { return c.Addr }

// random makes calls of all kinds on few keys and limits.
type random struct {
	*rand.Rand
	scales []time.Duration // longer than the test: Redis removes hashes by a clock of its own
	names  []string
	taken  []window.Take // what may be given back
	ids    [][2]int64    // the IDs in both backends
}

func (r *random) take() window.Take {
	l := window.Limit{Max: 1 + r.Uint64N(12), Scale: r.scales[r.IntN(len(r.scales))], Algorithm: window.Algorithm(1 + r.IntN(5))}
	if l.Algorithm == window.TokenBucket && r.IntN(2) == 0 {
		l.Burst = 1 + r.Uint64N(20)
	}
	if r.IntN(4) == 0 {
		l.Name = r.names[r.IntN(len(r.names))]
	}
	if r.IntN(20) == 0 && l.Algorithm != window.SlidingLog {
		l.Max = rediswindow.MaxCount
		l.Burst = 0
	}
	n := r.Uint64N(4)
	if r.IntN(30) == 0 && l.Algorithm != window.SlidingLog {
		n = rediswindow.MaxCount - r.Uint64N(3)
	}
	return l.For(fmt.Sprint("k", r.IntN(4)), n)
}

// call returns a call for both backends.
func (r *random) call() (one, other *rediswindow.Asked) {
	a := rediswindow.Asked{Takes: []window.Take{r.take()}}
	b := a
	t := &a.Takes[0]
	switch r.IntN(16) {
	case 0, 1, 2, 3, 4:
		a.Verb = "take"
	case 5, 6:
		a.Verb = "take"
		for range 1 + r.IntN(3) {
			if u := r.take(); !same(a.Takes, u) {
				a.Takes = append(a.Takes, u)
			}
		}
	case 7, 8:
		a.Verb = "hit"
		if t.Limit.Algorithm.Rolling() {
			a.Verb = "charge"
		}
	case 9, 10:
		a.Verb = "peek"
	case 11, 12, 13:
		a.Verb = "back"
		if len(r.taken) == 0 {
			a.Verb = "peek"
			break
		}
		i := max(0, len(r.taken)-1-r.IntN(20))
		*t, a.ID, b.ID = r.taken[i], r.ids[i][0], r.ids[i][1]
	case 14:
		a.Verb = []string{"set", "reset"}[r.IntN(2)]
	default:
		a.Verb = "delete"
		if r.IntN(2) == 0 {
			a.Scales = fmt.Sprintf(" %d ", t.Limit.Scale.Microseconds())
		}
	}
	b.Verb, b.Takes, b.Scales = a.Verb, a.Takes, a.Scales
	return &a, &b
}

func same(takes []window.Take, t window.Take) bool {
	for _, u := range takes {
		if u.Key == t.Key && u.Limit.Name == t.Limit.Name && u.Limit.Scale == t.Limit.Scale && u.Limit.Algorithm == t.Limit.Algorithm {
			return true
		}
	}
	return false
}

// Calls that share a request return what requests of their own do, in the order of the script, and store the same,
// also beside values that are no windows. A clock that is set back finds again what was over and is not removed
// yet, and what Redis removes of a crowded hash is its choice: so only clocks of hashes with few fields are set back.
func TestCallsThatShareARequestAgreeWithThoseThatDoNot(t *testing.T) {
	t.Run("crowded hashes", func(t *testing.T) {
		agree(t, &random{scales: []time.Duration{20 * time.Second, 1000 * time.Second, 1500 * time.Second}, names: []string{"n"}}, false)
	})
	t.Run("a clock that is set back", func(t *testing.T) {
		agree(t, &random{scales: []time.Duration{20 * time.Second}, names: []string{""}}, true)
	})
}

func agree(t *testing.T, r *random, setBack bool) {
	s := testkit.StartRedis(t)
	now := time.UnixMicro(1893456000000000)
	option := rediswindow.WithClock(func() time.Time { return now })
	shared := rediswindow.New(client{s}, option, rediswindow.WithPrefix("s:"))
	single := rediswindow.New(client{s}, option, rediswindow.WithPrefix("o:"))
	r.Rand = rand.New(rand.NewPCG(1, 2))
	calls := 0
	for round := 0; calls < 20_000; round++ {
		for _, prefix := range []string{"s:", "o:"} { // they outlive Delete, or become windows by Set
			switch round % 100 {
			case 10:
				_, err := s.Do("SET", prefix+"{k:k3}:v1", "text")
				require.NoError(t, err)
			case 20:
				_, err := s.Do("DEL", prefix+"{k:k3}:v1")
				require.NoError(t, err)
			case 30:
				_, err := s.Do("HSET", prefix+"{k:k2}:v1", "f20000000", "text", "b20000000", "text", "w20000000", "text", "l20000000", "text")
				require.NoError(t, err)
			case 40:
				_, err := s.Do("DEL", prefix+"{k:k2}:v1")
				require.NoError(t, err)
			}
		}
		var asked []*rediswindow.Asked
		twin := map[*rediswindow.Asked]*rediswindow.Asked{}
		for range 1 + r.IntN(80) {
			one, other := r.call()
			asked = append(asked, one)
			twin[one] = other
			if r.IntN(3) == 0 { // equal ones
				for range r.IntN(10) {
					equal, otherEqual := *one, *other
					asked = append(asked, &equal)
					twin[&equal] = &otherEqual
				}
			}
		}
		require.NoError(t, shared.Request(t.Context(), asked))
		for k := range 4 {
			fields, err := s.Do("HLEN", fmt.Sprintf("s:{k:k%d}:v1", k)) // one is a text now and then
			if n, _ := strconv.Atoi(fields); err == nil && setBack {
				require.Less(t, n, 16, "crowded")
			}
		}
		for _, a := range asked {
			b := twin[a]
			calls++
			require.NoError(t, single.Request(t.Context(), []*rediswindow.Asked{b}))
			require.Equal(t, fmt.Sprint(b.Err), fmt.Sprint(a.Err))
			if a.Verb != "peek" {
				require.Equal(t, b.N, a.N, "%+v %+v", a, b)
			}
			require.Len(t, a.Windows, len(b.Windows))
			for i := range a.Windows {
				v, w := a.Windows[i], b.Windows[i]
				if a.Verb == "take" && a.N > 0 && v.ID > 0 {
					r.taken, r.ids = append(r.taken, a.Takes[i]), append(r.ids, [2]int64{v.ID, w.ID})
				}
				require.Equal(t, v.ID == 0, w.ID == 0)
				v.ID, w.ID = 0, 0 // random, or of epochs, which differ if what is over is removed earlier
				require.Equal(t, w, v, "%s %+v of %+v", a.Verb, a.Takes[i], a)
			}
		}
		switch step := r.IntN(6); {
		case step == 0:
			now = now.Add(time.Duration(r.Int64N(3000_000_000)) * time.Microsecond)
		case step == 1 && setBack:
			now = now.Add(-time.Duration(r.Int64N(300)) * time.Second)
		default:
			now = now.Add(time.Duration(r.Int64N(5_000_000)) * time.Microsecond)
		}
	}
}

// A hash lives at least as long as each of the windows that a call opens in it.
func TestTakesOfOneKeyOutliveTheirWindows(t *testing.T) {
	s := testkit.StartRedis(t)
	b := rediswindow.New(client{s})
	short := window.Limit{Max: 10, Scale: time.Hour, Algorithm: window.FixedWindow}
	long := short
	long.Scale = 10 * time.Hour
	for key, limits := range map[string][]window.Limit{"a": {short, long}, "b": {long, short}} {
		takes := []window.Take{limits[0].For(key, 1), limits[1].For(key, 1)}
		granted, err := b.TakeAll(t.Context(), takes, make([]window.Window, 2))
		require.NoError(t, err)
		require.True(t, granted)
		left, err := s.Do("PTTL", "throttr:{k:"+key+"}:v1")
		require.NoError(t, err)
		ms, err := strconv.Atoi(left)
		require.NoError(t, err)
		require.Greater(t, ms, int((9 * time.Hour).Milliseconds()), key)
	}
}
