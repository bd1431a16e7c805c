package fixedwindow

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// virtual starts a server whose clock stands, and a backend with its clock.
func virtual(t *testing.T) (*mockserver.Server, *Backend[uint16]) {
	srv := inMemory(t, mockserver.WithVirtualClock())
	o := options[uint16](t, srv)
	o.Now = srv.Now
	return srv, start(t, o)
}

// hitCounts hits and requires the count.
func hitCounts(t *testing.T, b *Backend[uint16], count uint64) {
	t.Helper()
	w, _, err := b.Hit(t.Context(), "k", time.Second, 100, 1)
	require.NoError(t, err)
	require.Equal(t, count, w.Count)
}

func TestRealTimeDoesNotMatterToAVirtualClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := virtual(t)
		hitCounts(t, b, 1)
		time.Sleep(1700 * time.Millisecond)
		hitCounts(t, b, 2)
		srv.Advance(500 * time.Millisecond)
		time.Sleep(time.Hour)
		hitCounts(t, b, 3)
		w, granted, _, err := b.Take(t.Context(), "k", time.Second, 100, 1)
		require.NoError(t, err)
		require.True(t, granted)
		time.Sleep(time.Minute)
		given, _, err := b.GiveBack(t.Context(), "k", time.Second, w.ID, 1)
		require.NoError(t, err)
		require.True(t, given)
		srv.Advance(500 * time.Millisecond)
		hitCounts(t, b, 1)
		srv.Advance(999 * time.Millisecond)
		hitCounts(t, b, 2)
	})
}

// As if the process was stopped in a debugger, or shared its processor with many.
func TestSlowRepliesDoNotMatterToAVirtualClock(t *testing.T) {
	for _, op := range []codec.Op{codec.OpInsert, codec.OpQuery, codec.OpUpdate} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, b := virtual(t)
				defer srv.Inject(mockserver.Fault{Op: op, Delay: 3 * time.Second})()
				for range 3 {
					for count := range uint64(3) {
						hitCounts(t, b, count+1)
					}
					srv.Advance(time.Second)
				}
			})
		})
	}
}

func TestGuardsTakeNoTimeByAVirtualClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := virtual(t)
		const most = 200 * time.Millisecond
		for i := range 3 {
			hitCounts(t, b, 1)
			begun := time.Now()
			_, err := b.Reset(t.Context(), "k", time.Second)
			require.NoError(t, err)
			hitCounts(t, b, 1)
			w, _, err := b.Set(t.Context(), "k", time.Second, 40)
			require.NoError(t, err)
			require.EqualValues(t, 40, w.Count)
			hitCounts(t, b, 41)
			n, _, err := b.Delete(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.LessOrEqual(t, time.Since(begun), most, i)
		}
		for i := range 20 {
			hits(t, b, 1, fmt.Sprint(i), time.Minute, 5)
		}
		srv.Advance(time.Minute)
		begun := time.Now()
		b.Close()
		require.LessOrEqual(t, time.Since(begun), most)
		require.Zero(t, len(windowKeys(srv)))
	})
}

func TestGuardsPassAsTheSlowerClockDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shift atomic.Int64
		s := newSteady(func() time.Time { return time.Now().Round(0).Add(time.Duration(shift.Load())) })
		begun := s.Now()
		passed := func() time.Duration { return s.Now().Sub(begun) }
		time.Sleep(time.Second)
		require.Equal(t, time.Second, passed())
		shift.Add(int64(time.Hour))
		require.Equal(t, time.Second, passed(), "a jump forward")
		shift.Add(int64(-2 * time.Hour))
		require.Equal(t, time.Second, passed(), "a jump back")
		time.Sleep(time.Second)
		require.Equal(t, 2*time.Second, passed())

		early, err := s.sleepUntil(t.Context(), s.Now().Add(300*time.Millisecond))
		require.NoError(t, err)
		require.Zero(t, early, "the clock moves")
		require.Equal(t, 2300*time.Millisecond, passed())

		var fired, stopped atomic.Bool
		s.afterFunc(s.Now().Add(time.Second), func() { fired.Store(true) })
		s.afterFunc(s.Now().Add(time.Second), func() { stopped.Store(true) })()
		shift.Add(int64(-10 * time.Second))
		time.Sleep(999 * time.Millisecond)
		s.Now()
		require.False(t, fired.Load())
		time.Sleep(10 * time.Second)
		require.True(t, fired.Load())
		require.False(t, stopped.Load())
	})
}

func TestGuardsPassByACoarseClock(t *testing.T) {
	const tick = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := newSteady(func() time.Time { return time.Now().Truncate(tick) })
		begun := s.Now()
		for range 1000 {
			time.Sleep(time.Millisecond)
			s.Now()
		}
		require.InDelta(t, time.Second, s.Now().Sub(begun), float64(tick))
		for range 10 {
			time.Sleep(1300 * time.Microsecond)
			early, err := s.sleepUntil(t.Context(), s.Now().Add(tick/2))
			require.NoError(t, err)
			require.Zero(t, early, "the clock moves")
		}
	})
}
