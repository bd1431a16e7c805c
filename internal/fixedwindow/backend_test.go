package fixedwindow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// counting is a Server that counts calls.
type counting[T codec.Value] struct {
	Server[T]
	calls atomic.Int64
}

func (c *counting[T]) Do(ctx context.Context, cl *conn.Call[T]) (done, sent bool, err error) {
	c.calls.Add(1)
	return c.Server.Do(ctx, cl)
}

// instant is a Server that responds at once. It has no record at first. All requests of longer
// calls succeed, and each call shows a count that is higher by 1.
type instant struct {
	unswept
	count uint16
}

func (s *instant) Do(_ context.Context, cl *conn.Call[uint16]) (done, sent bool, err error) {
	s.count++
	r := conn.Reply[uint16]{OK: cl.Len() > 1, Quota: s.count}
	for range cl.Len() {
		cl.Replies = append(cl.Replies, r)
	}
	return true, true, nil
}

func TestLoneHitIsOneCallWithoutAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		o := options[uint16](t, srv)
		server := &counting[uint16]{Server: o.Servers[0]}
		o.Servers[0] = server
		b := start(t, o)
		require.Equal(t, 1, hits(t, b, 1, "k", time.Minute, 100))
		require.EqualValues(t, 2, server.calls.Load(), "a lookup and an opening")
		synctest.Wait()
		before := runtime.NumGoroutine()
		require.Equal(t, 50, hits(t, b, 50, "k", time.Minute, 100))
		require.EqualValues(t, 52, server.calls.Load())
		require.Equal(t, before, runtime.NumGoroutine())
		require.Equal(t, 51, srv.Requests(codec.OpUpdate))
		require.Equal(t, 1, srv.Requests(codec.OpInsert))
	})
}

func TestLoneHitAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("a sync.Pool loses elements")
	}
	o := options[uint16](t)
	o.Servers = []Server[uint16]{&instant{}}
	o.Algorithm = window.Aligned // so that the TTL does not matter
	b := start(t, o)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, _, err := b.Hit(t.Context(), "k", time.Minute, 10_000, 1); err != nil {
			t.Error(err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if w, _, err := b.Hit(t.Context(), "k", time.Minute, 0, 1); err != nil || w.Count == 0 {
			t.Error(w, err)
		}
	}), "denied from memory")
}

func TestHitsOnOneKeyShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t, mockserver.WithValueSize(4))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		b := start(t, options[uint32](t, srv))
		const callers, rounds = 64, 20
		var all sync.WaitGroup
		for range callers {
			all.Go(func() { hits(t, b, rounds, "k", time.Minute, 1<<20) })
		}
		all.Wait()
		require.LessOrEqual(t, srv.Requests(codec.OpUpdate), 2*rounds)
		w, _, err := b.Get(t.Context(), "k", time.Minute)
		require.NoError(t, err)
		require.EqualValues(t, callers*rounds, w.Count)
	})
}

func TestServerOfAKeyIsPickedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := inMemory(t), inMemory(t)
		o := options[uint16](t, first, second)
		picks := 0
		pick := o.Pick
		o.Pick = func(key string) int { picks++; return pick(key) }
		b := start(t, o)
		hits(t, b, 10, "a", time.Minute, 5)
		hits(t, b, 10, "b", time.Minute, 5)
		_, _, err := b.Set(t.Context(), "a", time.Minute, 1)
		require.NoError(t, err)
		require.Equal(t, 2, picks)
		require.Len(t, first.Keys(), 1)
		require.Len(t, second.Keys(), 1)
	})
}

func TestWindowsAreIdentifiedByTheirBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b, other := start(t, options[uint16](t, srv)), start(t, options[uint16](t, srv))
		hit := func(b *Backend[uint16]) int64 {
			w, _, err := b.Hit(t.Context(), "k", time.Second, 1, 1)
			require.NoError(t, err)
			return w.ID
		}
		id := hit(b)
		require.Equal(t, id, hit(b))
		require.Equal(t, id, hit(other))
		require.Equal(t, id, hit(b), "denied from memory")
		time.Sleep(time.Second)
		require.NotEqual(t, id, hit(b))
	})
}

func TestArgumentsOutOfRangeAreRefused(t *testing.T) {
	b := start(t, options[uint16](t, inMemory(t)))
	ctx := t.Context()
	calls := map[string]func(scale time.Duration) error{
		"Hit":    func(d time.Duration) error { _, _, err := b.Hit(ctx, "k", d, 1, 1); return err },
		"Inc":    func(d time.Duration) error { _, _, err := b.Inc(ctx, "k", d, 1); return err },
		"Get":    func(d time.Duration) error { _, _, err := b.Get(ctx, "k", d); return err },
		"Set":    func(d time.Duration) error { _, _, err := b.Set(ctx, "k", d, 1); return err },
		"Reset":  func(d time.Duration) error { _, err := b.Reset(ctx, "k", d); return err },
		"Delete": func(d time.Duration) error { _, _, err := b.Delete(ctx, "k", d); return err },
	}
	for name, call := range calls {
		for _, scale := range []time.Duration{0, -1, 60, time.Millisecond - 1} {
			require.ErrorIs(t, call(scale), window.ErrScale, "%s with %v", name, scale)
		}
		require.ErrorIs(t, call(time.Hour+1), window.ErrRange, name)
	}
	_, sent, err := b.Hit(ctx, "k", time.Minute, 1<<16, 1)
	require.ErrorIs(t, err, window.ErrRange)
	require.False(t, sent)
	_, _, err = b.Hit(ctx, "k", time.Minute, 1000, 1<<16)
	require.ErrorIs(t, err, window.ErrRange)
	_, _, err = b.Inc(ctx, "k", time.Minute, 1<<16)
	require.ErrorIs(t, err, window.ErrRange)
	_, _, err = b.Set(ctx, "k", time.Minute, 1<<16)
	require.ErrorIs(t, err, window.ErrRange)
	require.Zero(t, b.Stats())
}

// alwaysOver is a Server that shows a window in each lookup, and none when it is counted in.
type alwaysOver struct{ unswept }

func (alwaysOver) Do(_ context.Context, cl *conn.Call[uint16]) (done, sent bool, err error) {
	for range cl.Len() {
		cl.Replies = append(cl.Replies, conn.Reply[uint16]{OK: cl.Len() == 1, Quota: 1})
	}
	return true, true, nil
}

func TestHitFailsIfTheScaleIsTooShortForTheNetwork(t *testing.T) {
	o := options[uint16](t)
	o.Servers = []Server[uint16]{alwaysOver{}}
	o.Algorithm = window.Aligned
	b := start(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, sent, err := b.Hit(ctx, "k", time.Minute, 10, 1)
	require.ErrorIs(t, err, conn.ErrStale)
	require.ErrorContains(t, err, "1m0s")
	require.False(t, sent)
}

func TestCallsThatDoNothingAreNotRemembered(t *testing.T) {
	b := start(t, options[uint16](t, inMemory(t)))
	_, _, err := b.Get(t.Context(), "k", time.Minute)
	require.NoError(t, err)
	require.Zero(t, b.Stats(), "Get opens no window")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	all := func(ctx context.Context) (errs []error) {
		_, _, hit := b.Hit(ctx, "k", time.Minute, 1, 1)
		_, _, inc := b.Inc(ctx, "k", time.Minute, 1)
		_, _, set := b.Set(ctx, "k", time.Minute, 1)
		_, reset := b.Reset(ctx, "k", time.Minute)
		return []error{hit, inc, set, reset}
	}
	for _, err := range all(ended) {
		require.ErrorIs(t, err, context.Canceled)
	}
	b.Close()
	for _, err := range all(t.Context()) {
		require.ErrorIs(t, err, window.ErrClosed)
	}
	require.Zero(t, b.Stats())
}

// Each caller waits less long than the server takes to respond.
func TestCanceledHitsDoNotWrapTheCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t, mockserver.WithValueSize(1))
		b := start(t, options[uint8](t, srv))
		require.Equal(t, 1, hits(t, b, 1, "k", time.Minute, 100))
		remove := srv.Inject(mockserver.Fault{Delay: 2 * time.Second})
		before := srv.Requests(codec.OpUpdate)
		for range 190 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, _, err := b.Hit(ctx, "k", time.Minute, 100, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		require.Equal(t, 1, srv.Requests(codec.OpUpdate)-before, "at most one request is in flight")
		remove()
		time.Sleep(2 * time.Second)
		require.Equal(t, 98, hits(t, b, 200, "k", time.Minute, 100))
	})
}

func TestLargeIncrementsOfTwoClientsAreDeniedIfTheyWrapTheCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond}) // their requests overlap
		const limit = 60_000
		first, second := start(t, options[uint16](t, srv)), start(t, options[uint16](t, srv))
		_, _, err := first.Set(t.Context(), "k", time.Minute, limit)
		require.NoError(t, err)
		var all sync.WaitGroup
		for _, b := range []*Backend[uint16]{first, second} {
			all.Go(func() {
				w, _, err := b.Hit(t.Context(), "k", time.Minute, limit, 3000)
				require.NoError(t, err)
				require.Greater(t, w.Count, uint64(limit))
			})
		}
		all.Wait()
		require.Zero(t, hits(t, first, 10, "k", time.Minute, limit))
		require.Zero(t, hits(t, start(t, options[uint16](t, srv)), 10, "k", time.Minute, limit))
	})
}

func TestLargeIncrementIsCountedInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options[uint8](t, inMemory(t, mockserver.WithValueSize(1))))
		require.Equal(t, 1, hits(t, b, 1, "k", time.Minute, 100))
		for _, count := range []uint64{51, 101} {
			w, _, err := b.Hit(t.Context(), "k", time.Minute, 100, 50)
			require.NoError(t, err)
			require.Equal(t, count, w.Count)
		}
		w, _, err := b.Get(t.Context(), "k", time.Minute)
		require.NoError(t, err)
		require.EqualValues(t, 101, w.Count)
	})
}

func TestIncFailsIfItWrapsTheCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		first, second := start(t, options[uint16](t, srv)), start(t, options[uint16](t, srv))
		_, _, err := first.Set(t.Context(), "k", time.Minute, 65_000)
		require.NoError(t, err)
		errs := make(chan error, 2)
		for _, b := range []*Backend[uint16]{first, second} {
			go func() {
				_, _, err := b.Inc(t.Context(), "k", time.Minute, 300)
				errs <- err
			}()
		}
		require.ErrorIs(t, errors.Join(<-errs, <-errs), window.ErrRange)
		for _, b := range []*Backend[uint16]{first, second} {
			w, _, err := b.Get(t.Context(), "k", time.Minute)
			require.NoError(t, err)
			require.GreaterOrEqual(t, w.Count, uint64(65_000))
			require.Zero(t, hits(t, b, 10, "k", time.Minute, 60_000))
		}
	})
}

// The end of a window is known to a second only. So the window that another client opens after a
// Reset, under the same name, may look like the one before.
func TestEndIsNotTooEarlyAfterAResetByAnotherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t, mockserver.WithValueSize(1))
		client := func() *Backend[uint8] { return start(t, options[uint8](t, srv)) }
		const scale, limit = 10 * time.Second, 100
		hits(t, client(), 5, "k", scale, limit)
		b, other := client(), client()
		time.Sleep(500 * time.Millisecond)
		hits(t, b, 1, "k", scale, limit)
		time.Sleep(100 * time.Millisecond)
		_, err := other.Reset(t.Context(), "k", scale)
		require.NoError(t, err)
		hits(t, other, 1, "k", scale, limit)
		end := time.Now().Add(scale)
		time.Sleep(900 * time.Millisecond)
		w, _, err := b.Hit(t.Context(), "k", scale, limit, 1)
		require.NoError(t, err)
		require.EqualValues(t, 2, w.Count)
		require.False(t, w.ExpiresAt.Before(end), "%v is before %v", w.ExpiresAt, end)
	})
}

func TestCloseRemovesRecordsOfWindowsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		o := options[uint16](t, srv)
		o.MaxInFlight = 8 // so that it takes several batches
		b := New(o)
		for i := range 100 {
			hits(t, b, 1, fmt.Sprint(i), time.Minute, 1)
		}
		require.Equal(t, Stats{Windows: 100, Records: 100}, b.Stats())
		time.Sleep(time.Minute) // they are over, but not due
		hits(t, b, 1, "open", time.Minute, 1)
		require.Len(t, srv.Keys(), 101)
		b.Close()
		require.Len(t, srv.Keys(), 1)
		b.Close()

		ctx := t.Context()
		for name, err := range map[string]error{
			"Hit":    func() error { _, _, err := b.Hit(ctx, "k", time.Minute, 1, 1); return err }(),
			"Inc":    func() error { _, _, err := b.Inc(ctx, "k", time.Minute, 1); return err }(),
			"Get":    func() error { _, _, err := b.Get(ctx, "k", time.Minute); return err }(),
			"Set":    func() error { _, _, err := b.Set(ctx, "k", time.Minute, 1); return err }(),
			"Reset":  func() error { _, err := b.Reset(ctx, "k", time.Minute); return err }(),
			"Delete": func() error { _, _, err := b.Delete(ctx, "k"); return err }(),
		} {
			require.ErrorIs(t, err, window.ErrClosed, name)
		}
	})
}

func TestCloseTakesASecondIfTheServerDoesNotRespond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b := New(options[uint16](t, srv))
		hits(t, b, 1, "over", time.Second, 1)
		time.Sleep(1100 * time.Millisecond)
		remove := srv.Inject(mockserver.Fault{Delay: time.Hour})
		defer remove()
		hit := make(chan error, 1)
		go func() {
			_, _, err := b.Hit(t.Context(), "k", time.Minute, 1, 1)
			hit <- err
		}()
		synctest.Wait()
		began := time.Now()
		b.Close()
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, <-hit, window.ErrClosed)
	})
}

//evidence:bounds Records removed in one batch
func TestRecordsAreRemovedInBatchesThatFitACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		o := options[uint16](t, srv)
		o.MaxInFlight = 10
		server := &counting[uint16]{Server: o.Servers[0]}
		o.Servers[0] = server
		b := start(t, o)
		for i := range 95 {
			hits(t, b, 1, fmt.Sprint(i), time.Second, 1)
		}
		before := server.calls.Load()
		time.Sleep(10 * time.Second)
		require.Empty(t, srv.Keys())
		require.Zero(t, srv.Expired())
		require.Zero(t, b.Stats())
		require.EqualValues(t, 20, server.calls.Load()-before)
	})
}

func TestRemovalIsRetriedWhenTheServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		o := options[uint16](t)
		var down atomic.Bool
		o.Servers = []Server[uint16]{newLink(t, o.Calls, func(ctx context.Context) (net.Conn, error) {
			if down.Load() {
				return nil, net.ErrClosed
			}
			return srv.Dial(ctx)
		})}
		b := start(t, o)
		hits(t, b, 1, "k", time.Second, 1)
		down.Store(true)
		srv.Disconnect()
		time.Sleep(5 * time.Second)
		require.Len(t, srv.Keys(), 1)
		require.Equal(t, 1, b.Stats().Records)
		_, sent, err := b.Hit(t.Context(), "k", time.Second, 1, 1)
		require.ErrorIs(t, err, errNoConnection)
		require.False(t, sent)
		down.Store(false)
		time.Sleep(time.Second)
		require.Empty(t, srv.Keys())
		require.Zero(t, b.Stats())
	})
}

func TestTooManyRecordsAreNotInserted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		o := options[uint16](t, srv)
		o.MaxWindows = 2 // 8 records
		b := start(t, o)
		for i := range 8 {
			hits(t, b, 1, fmt.Sprint(i), time.Minute, 1)
		}
		_, sent, err := b.Hit(t.Context(), "one more", time.Minute, 1, 1)
		require.ErrorIs(t, err, ErrTooManyWindows)
		require.NotErrorIs(t, err, conn.ErrQueueFull)
		require.False(t, sent)
		_, sent, err = b.Set(t.Context(), "one more", time.Minute, 1)
		require.ErrorIs(t, err, ErrTooManyWindows)
		require.False(t, sent)
		require.Equal(t, 0, hits(t, b, 1, "0", time.Minute, 1), "open windows are served")
		time.Sleep(3 * time.Minute)
		require.Equal(t, 1, hits(t, b, 1, "one more", time.Minute, 1))
	})
}

func TestFullQueueIsTheErrorOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		o := options[uint16](t, srv)
		o.MaxQueued = 1
		b := start(t, o)
		hits(t, b, 1, "k", time.Minute, 10)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { hits(t, b, 1, "k", time.Minute, 10) })
			synctest.Wait()
		}
		_, sent, err := b.Hit(t.Context(), "k", time.Minute, 10, 1)
		require.ErrorIs(t, err, conn.ErrQueueFull)
		require.False(t, sent)
		all.Wait()
	})
}

func TestDeleteEndsTheWindowsThatAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options[uint16](t, inMemory(t)))
		hits(t, b, 2, "k", time.Second, 10)
		hits(t, b, 2, "k", time.Minute, 10)
		hits(t, b, 2, "other", time.Minute, 10)
		time.Sleep(time.Second)
		n, _, err := b.Delete(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 1, n, "one of the two is over")
		w, _, err := b.Get(t.Context(), "k", time.Minute)
		require.NoError(t, err)
		require.Zero(t, w)
		w, _, err = b.Get(t.Context(), "other", time.Minute)
		require.NoError(t, err)
		require.EqualValues(t, 2, w.Count)
	})
}
