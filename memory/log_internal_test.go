package memory

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/race"
	"github.com/throttr-go/throttr/window"
)

// times returns the times of e.
func (l *log) all(e *state) (ts []int64) {
	c := e.chain()
	at := position{c.first, c.offset}
	for range c.n {
		ts = append(ts, l.time(at))
		at = l.after(at)
	}
	return ts
}

// Random changes of several logs that share segments leave what they leave of slices.
func TestLogsAgreeWithSlices(t *testing.T) {
	const logs, scale = 5, 1000
	random := rand.New(rand.NewPCG(1, 2))
	tab := newTable(logs, 0)
	l := &log{segments: make([]segment, 1), most: 1000}
	want := make([][]int64, logs)
	keys := make([]windowID, logs)
	for i := range keys {
		keys[i] = windowID{words: words{first: uint64(i)}, scale: scale, hash: uint32(i) << 28, kind: kind(window.SlidingLog)}
		tab.insert(&keys[i]).set(state{start: -scale, scale: scale, meta: 1 << generationShift})
	}
	now, most := int64(0), 0
	for range race.Fewer(50_000) {
		i := random.IntN(logs)
		r := tab.find(&keys[i])
		e := r.state()
		l.trim(&e, now)
		r.set(e)
		want[i] = slices.DeleteFunc(want[i], func(t int64) bool { return now-t >= scale })
		require.Equal(t, want[i], append(want[i][:0:0], l.all(&e)...))
		n := random.Uint64N(20)
		switch random.IntN(12) {
		case 0:
			l.shorten(&e, n)
			want[i] = want[i][:len(want[i])-min(int(n), len(want[i]))]
		case 1:
			l.release(r)
			e, want[i] = r.state(), nil
		case 2, 3, 4:
			if len(want[i]) > 0 {
				at := want[i][random.IntN(len(want[i]))]
				if random.IntN(4) == 0 {
					at++
				}
				found, left := slices.Contains(want[i], at), n
				want[i] = slices.DeleteFunc(want[i], func(t int64) bool {
					if t != at || left == 0 {
						return false
					}
					left--
					return true
				})
				require.Equal(t, found, l.giveBack(&e, at, n))
			}
		case 5:
			r.set(e)
			if random.IntN(10) == 0 {
				l.compact(tab)
			}
			e = r.state()
		default:
			if len(want[i]) < 150 {
				l.append(&e, now, n)
				want[i] = append(want[i], slices.Repeat([]int64{now}, int(n))...)
			}
		}
		require.Equal(t, len(want[i]), int(e.logged()))
		c := e.chain()
		for k := range want[i] {
			require.Equal(t, want[i][k], l.nth(&c, k+1))
		}
		if len(want[i]) > 0 {
			require.Equal(t, want[i][len(want[i])-1], e.start)
		} else {
			require.False(t, e.active(now))
		}
		r.set(e)
		if used := usedBlocks(tab); used != l.used {
			require.Equal(t, used, l.used)
		}
		most = max(most, l.used)
		require.LessOrEqual(t, len(l.segments), most+1)
		if random.IntN(3) == 0 {
			now += random.Int64N(60)
		}
		if random.IntN(2000) == 0 {
			now += 2 * scale
		}
	}
	require.Greater(t, most, 30)
}

// usedSegments returns how many segments the logs of all records have.
func usedBlocks(t *table) (n int) {
	t.all(0, len(t.records), func(r *record) bool {
		e := r.state()
		c := e.chain()
		n += c.segments()
		return true
	})
	return n
}

// Cleanings, Reset, Delete, Set and the end of windows make segments unused, and a cleaning frees them.
func TestLogsOfWindowsThatAreGoneTakeNoMemory(t *testing.T) {
	now := time.Now()
	b := New(WithClock(func() time.Time { return now }), WithMaxKeys(100))
	defer b.Close()
	l := func() *log { return b.shards[0].log }
	for round := range 5 {
		for i := range 50 {
			_, err := b.Hit(t.Context(), string(rune('a'+i)), LimitOf(window.SlidingLog, time.Minute, 20), 20)
			require.NoError(t, err)
		}
		require.Equal(t, 50*3, l().used)
		switch round {
		case 0:
			now = now.Add(time.Minute)
			require.Equal(t, 50, b.Clean())
		case 1:
			for i := range 50 {
				require.NoError(t, b.Reset(t.Context(), string(rune('a'+i)), LimitOf(window.SlidingLog, time.Minute, 10)))
			}
		case 2:
			for i := range 50 {
				_, err := b.Delete(t.Context(), string(rune('a'+i)))
				require.NoError(t, err)
			}
		case 3:
			for i := range 50 {
				_, err := b.Set(t.Context(), string(rune('a'+i)), LimitOf(window.SlidingLog, time.Minute, 10), 0)
				require.NoError(t, err)
			}
		default:
			now = now.Add(time.Minute)
			for i := range 50 {
				_, err := b.Peek(t.Context(), string(rune('a'+i)), LimitOf(window.SlidingLog, time.Minute, 10), 0)
				require.NoError(t, err)
			}
		}
		require.Zero(t, l().used)
		b.Clean()
		require.Len(t, l().segments, 1)
	}
}
