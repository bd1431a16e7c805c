package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// lagged is a connection that takes its time to send.
type lagged struct {
	net.Conn
	lag time.Duration
}

func (l lagged) Write(p []byte) (int, error) {
	time.Sleep(l.lag)
	return l.Conn.Write(p)
}

func TestHitsInAWindowThatIsAboutToBeUndoneAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		a := throttr.NewRateLimit(testkit.Connect[uint16](t, srv, throttr.Config{
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				nc, err := srv.Dial(ctx)
				return lagged{nc, 20 * time.Millisecond}, err
			},
		}).Backend())
		b, c := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		start := time.Now().Truncate(time.Second).Add(time.Second)
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		at(0)
		testkit.Hits(t, c, 1, "k", time.Second, limit)
		testkit.Hits(t, a, 1, "k", time.Second, limit)
		at(1300 * time.Millisecond) // that window is over; b looks, and opens another a millisecond later
		testkit.Hits(t, b, 1, "k", time.Second, limit)
		var both sync.WaitGroup
		var allowed atomic.Int64
		both.Go(func() { // what a sends arrives half a millisecond before the end of b's window
			at(2280500 * time.Microsecond)
			allowed.Add(int64(testkit.Hits(t, a, 2*limit, "k", time.Second, limit)))
		})
		both.Go(func() {
			at(2301200 * time.Microsecond)
			allowed.Add(int64(testkit.Hits(t, c, 2*limit, "k", time.Second, limit)))
		})
		both.Wait()
		require.EqualValues(t, limit, allowed.Load())
		testkit.RequireRemoved(t, srv, 5*time.Second)
	})
}

func TestALargeIncrementDoesNotWrapAWindowThatOthersHaveJustOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 190
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		slow := throttr.NewRateLimit(testkit.Connect[uint8](t, srv, throttr.Config{
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				nc, err := srv.Dial(ctx)
				return lagged{nc, 400 * time.Millisecond}, err
			},
		}).Backend())
		time.Sleep(time.Second)
		var all sync.WaitGroup
		all.Go(func() {
			res, err := slow.HitN(t.Context(), "k", time.Minute, 100, 92)
			if err != nil || res.Allowed {
				t.Errorf("%v, %v", res, err)
			}
		})
		time.Sleep(410 * time.Millisecond) // its look has been answered
		fast := testkit.Limiter[uint8](t, srv)
		require.Equal(t, limit, testkit.Hits(t, fast, 230, "k", time.Minute, limit))
		all.Wait()
		require.Zero(t, testkit.Hits(t, fast, 10, "k", time.Minute, limit))
		require.Zero(t, testkit.Hits(t, testkit.Limiter[uint8](t, srv), 10, "k", time.Minute, limit), "the counter has wrapped")
	})
}

func TestIncrementsBeyondAShareCountOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		const clients, each, n, limit = 8, 3, 1500, 20_000
		var all sync.WaitGroup
		var allowed atomic.Int64
		for i := range clients { // some in the next bucket already
			l := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(time.Duration(i)*100*time.Millisecond))
			for range each {
				all.Go(func() {
					res, err := l.HitN(t.Context(), "k", time.Second, limit, n)
					if err != nil || res.Count%n != 0 {
						t.Errorf("%v, %v", res, err)
					}
					if res.Allowed {
						allowed.Add(1)
					}
				})
			}
		}
		all.Wait()
		require.EqualValues(t, limit/n, allowed.Load())
		testkit.RequireRemoved(t, srv, 5*time.Second)
	})
}

// A conversation that is cut at any byte leaves counts that are as the callers were told.
func TestACutConnectionTellsTheTruthAboutEachHit(t *testing.T) {
	for _, d := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
		t.Run(d.String(), func(t *testing.T) {
			for after := 0; ; after++ {
				cut := false
				synctest.Test(t, func(t *testing.T) { cut = testCutHits(t, mockserver.Cut{Direction: d, After: after, Times: 1}) })
				if !cut || t.Failed() {
					require.Greater(t, after, 70)
					return
				}
			}
		})
	}
}

// testCutHits returns whether the cut has cut anything.
func testCutHits(t *testing.T, cut mockserver.Cut) bool {
	ctx, what := t.Context(), fmt.Sprintf("cut after %d bytes", cut.After)
	srv := testkit.InMemory(t)
	judge := testkit.Limiter[uint16](t, srv)
	srv.Cut(cut)
	client, err := throttr.Connect[uint16](ctx, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{Servers: []string{srv.Addr()}})))
	if err != nil {
		return true // the probe was cut
	}
	defer client.Close()
	l := throttr.NewRateLimit(client.Backend())
	failures := 0
	count := func(key string) uint64 {
		n, err := judge.Get(ctx, key, time.Minute)
		require.NoError(t, err, what)
		return n
	}
	// try calls f, and requires that the count is as before if f says that it has done
	// nothing, as wanted if f has been done, and one of both if it does not know.
	try := func(name, key string, f func(string) error, want uint64) {
		before := count(key)
		err := f(key)
		after := count(key)
		switch {
		case err == nil:
			require.Equal(t, want, after, "%s, %s", what, name)
		case throttr.SafeToRetry(err):
			failures++
			require.Equal(t, before, after, "%s, %s: %v", what, name, err)
		default:
			failures++
			require.Contains(t, []uint64{0, before, want}, after, "%s, %s: %v", what, name, err)
		}
	}
	hit := func(key string) error { _, err := l.Hit(ctx, key, time.Minute, 10); return err }
	set := func(key string) error { _, err := l.Set(ctx, key, time.Minute, 7); return err }
	reset := func(key string) error { return l.Reset(ctx, key, time.Minute) }
	try("a first hit", "k", hit, count("k")+1)
	try("a second hit", "k", hit, count("k")+1)
	try("a set", "k", set, 7)
	try("a hit after it", "k", hit, count("k")+1)
	try("a reset", "k", reset, 0)
	try("a hit after it", "k", hit, count("k")+1)
	try("the only hit", "hit", hit, 1)
	try("the only set", "set", set, 7)
	require.LessOrEqual(t, failures, 1, what)
	testkit.RequireRemoved(t, srv, 3*time.Minute)
	return failures > 0
}

func TestARestartWithoutDataOpensANewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend()
		l := throttr.NewRateLimit(backend)
		require.Equal(t, 5, testkit.Hits(t, l, 7, "k", time.Minute, 5))
		require.NoError(t, srv.Restart(false))
		time.Sleep(2 * time.Second)
		require.Equal(t, 5, testkit.Hits(t, l, 7, "k", time.Minute, 5))
		require.NoError(t, srv.Restart(true))
		time.Sleep(2 * time.Second)
		require.Equal(t, 0, testkit.Hits(t, l, 7, "k", time.Minute, 5))
		testkit.RequireRemoved(t, srv, 3*time.Minute)
		require.Zero(t, backend.Stats().Records)
	})
}

func TestRecordsAreRemovedWhenTheServerComesBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		l := testkit.Limiter[uint8](t, srv)
		for i := range 600 {
			testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 5)
		}
		time.Sleep(time.Minute)
		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(150 * time.Second) // of a margin of 195 s
		require.Len(t, testkit.Keys(srv), 600)
		srv.Refuse(false)
		testkit.RequireRemoved(t, srv, 10*time.Second)
	})
}

func TestAServerThatIsAwayHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := testkit.InMemory(t, mockserver.WithValueSize(1))
		silent := testkit.InMemory(t, mockserver.WithValueSize(1))
		client, err := throttr.Connect[uint8](t.Context(), throttr.Config{
			Servers: []string{"up:1", "silent:1"},
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				if address == "up:1" {
					return up.Dial(ctx)
				}
				return silent.Dial(ctx)
			},
		})
		require.NoError(t, err)
		defer client.Close()
		l := throttr.NewRateLimit(client.Backend())
		for i := range 2000 {
			testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 5)
			time.Sleep(time.Millisecond)
		}
		require.Greater(t, len(testkit.Keys(silent)), 500)
		silent.Inject(mockserver.Fault{Delay: time.Hour})
		testkit.RequireRemoved(t, up, 150*time.Second)
	})
}

func TestOthersGoOnWhenTheClientThatOpenedAWindowHasDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		dead := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		require.Equal(t, 2, testkit.Hits(t, throttr.NewRateLimit(dead.Backend()), 2, "k", time.Minute, 5))
		dead.Close()
		a, b := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		require.Equal(t, 3, testkit.Hits(t, a, 7, "k", time.Minute, 5)+testkit.Hits(t, b, 7, "k", time.Minute, 5))
		time.Sleep(time.Minute - 1)
		require.Equal(t, 0, testkit.Hits(t, a, 1, "k", time.Minute, 5))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 5, testkit.Hits(t, a, 7, "k", time.Minute, 5)+testkit.Hits(t, b, 7, "k", time.Minute, 5))
		time.Sleep(20 * time.Minute)
		require.Empty(t, testkit.Keys(srv), "what the dead client has left")
		require.Zero(t, srv.Expired())
	})
}

func TestAllAgreeOnAWindowWhoseRivalWasNeverRemoved(t *testing.T) {
	for _, size := range []string{"uint8", "uint64"} {
		t.Run(size, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if size == "uint8" {
					testRivals[uint8](t)
				} else {
					testRivals[uint64](t)
				}
			})
		})
	}
}

func testRivals[T codec.Value](t *testing.T) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
	time.Sleep(50 * time.Second)
	winner := testkit.Limiter[T](t, srv, testkit.ClockAhead(30*time.Second)) // in the next bucket
	require.Equal(t, 10, testkit.Hits(t, winner, 10, "k", time.Minute, 20))
	names := testkit.Keys(srv)
	require.Len(t, names, 1)
	part := strings.Split(names[0], ":")
	var bucket int64
	_, err := fmt.Sscan(part[2], &bucket)
	require.NoError(t, err)
	time.Sleep(300 * time.Microsecond)
	ttl, _ := srv.TTL(names[0])
	rival := fmt.Sprintf("rl:1m0s:%d:k", bucket-1)
	unit := codec.Nanoseconds
	amount := uint64(ttl + 300*time.Microsecond)
	if codec.Size[T]() == 1 {
		unit, amount = codec.Seconds, 90
	}
	raw := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{}))
	ok, err := raw.Insert(t.Context(), rival, 1, codec.TTL[T]{Amount: T(amount), Unit: unit})
	require.NoError(t, err)
	require.True(t, ok)

	a, b := testkit.Limiter[T](t, srv), testkit.Limiter[T](t, srv)
	require.Equal(t, 10, testkit.Hits(t, a, 6, "k", time.Minute, 20)+testkit.Hits(t, winner, 3, "k", time.Minute, 20)+testkit.Hits(t, b, 6, "k", time.Minute, 20))
	n, err := testkit.Limiter[T](t, srv).Get(t.Context(), "k", time.Minute)
	require.NoError(t, err)
	require.Greater(t, n, uint64(20))
}

func TestCallersWhoLeaveAreToldWhetherTheyWereCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		l := testkit.Limiter[uint16](t, srv)
		testkit.Hits(t, l, 1, "k", time.Minute, 150) // so that the window is known
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: 10 * time.Millisecond})
		var all sync.WaitGroup
		var counted, uncounted, left atomic.Int64
		for i := range 60 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 700 * time.Microsecond)
				patience := time.Duration(1+i%12) * 2300 * time.Microsecond
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := l.Hit(ctx, "k", time.Minute, 150)
				switch {
				case err == nil:
					counted.Add(1)
				case throttr.SafeToRetry(err):
					uncounted.Add(1)
				default:
					left.Add(1)
				}
				if err != nil && !throttr.Timeout(err) {
					t.Errorf("hit: %v", err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		require.Positive(t, counted.Load())
		require.Positive(t, uncounted.Load(), "callers who left the queue")
		require.Positive(t, left.Load(), "callers who left in flight")
		n, ok := srv.Counter(testkit.Keys(srv)[0])
		require.True(t, ok)
		require.EqualValues(t, 1+counted.Load()+left.Load(), n)
	})
}

func TestCallersWhoLeaveDuringALookAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: 10 * time.Millisecond})
		l := testkit.Limiter[uint16](t, srv)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
				defer cancel()
				if _, err := l.Hit(ctx, "k", time.Minute, 5); !throttr.SafeToRetry(err) || !throttr.Timeout(err) {
					t.Errorf("hit: %v", err)
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		res, err := l.Hit(t.Context(), "k", time.Minute, 5)
		require.NoError(t, err)
		require.Equal(t, uint64(1), res.Count)
		all.Wait()
	})
}

// Of two clients that open a window at once, the second's connection is cut at any byte.
func TestWhoComesSecondAndIsCutIsToldTheTruth(t *testing.T) {
	for after := 0; ; after++ {
		done := false
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			first := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(40*time.Second)) // in the next bucket
			srv.Cut(mockserver.Cut{Direction: mockserver.FromClient, After: after, Times: 1})
			client, err := throttr.Connect[uint16](t.Context(), testkit.Over(srv, testkit.WithoutRetries(throttr.Config{Servers: []string{srv.Addr()}})))
			if err != nil {
				return
			}
			defer client.Close()
			second := throttr.NewRateLimit(client.Backend())
			remove := srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			time.Sleep(40 * time.Second)
			var all sync.WaitGroup
			all.Go(func() { testkit.Hits(t, first, 1, "k", time.Minute, 10) })
			time.Sleep(100 * time.Microsecond)
			_, err = second.Hit(t.Context(), "k", time.Minute, 10)
			all.Wait()
			remove()
			sum := uint64(0)
			for _, name := range testkit.Keys(srv) {
				n, _ := srv.Counter(name)
				sum += n
			}
			switch {
			case err == nil:
				done = true
				require.Equal(t, uint64(2), sum, "cut after %d bytes", after)
			case throttr.SafeToRetry(err):
				require.Equal(t, uint64(1), sum, "cut after %d bytes: %v", after, err)
			}
			res, err := first.Hit(t.Context(), "k", time.Minute, 10)
			require.NoError(t, err)
			require.LessOrEqual(t, res.Count, uint64(3), "cut after %d bytes", after)
			testkit.RequireRemoved(t, srv, 3*time.Minute)
		})
		if done || t.Failed() {
			return
		}
	}
}

func TestManyClientsSetAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		const clients = 12
		var all sync.WaitGroup
		limiters := make([]*throttr.RateLimit, clients)
		for i := range limiters {
			limiters[i] = testkit.Limiter[uint16](t, srv, testkit.ClockAhead(time.Duration(i)*500*time.Millisecond))
		}
		time.Sleep(7 * time.Second) // some are in the next bucket
		for range 5 {
			for i, l := range limiters {
				all.Go(func() {
					if _, err := l.Set(t.Context(), "k", 10*time.Second, uint64(100+i)); err != nil {
						t.Errorf("set: %v", err)
					}
				})
			}
			all.Wait()
			require.Len(t, testkit.Keys(srv), 1, "one Set is the last")
			n, _ := srv.Counter(testkit.Keys(srv)[0])
			for _, l := range limiters {
				got, err := l.Get(t.Context(), "k", 10*time.Second)
				require.NoError(t, err)
				require.Equal(t, n, got)
			}
		}
		testkit.RequireRemoved(t, srv, time.Minute)
	})
}

func TestCloseEndsEveryHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which waits for all goroutines
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		l := throttr.NewRateLimit(client.Backend())
		testkit.Hits(t, l, 1, "known", time.Minute, 5)
		srv.Inject(mockserver.Fault{Delay: time.Hour})
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_, err := l.Hit(t.Context(), []string{"known", "new"}[i%2], time.Minute, 1000)
				if !errors.Is(err, throttr.ErrClosed) {
					t.Errorf("hit: %v", err)
				}
			})
			all.Go(func() {
				if err := l.Reset(t.Context(), "other", time.Minute); !errors.Is(err, throttr.ErrClosed) {
					t.Errorf("reset: %v", err)
				}
			})
		}
		time.Sleep(time.Second)
		client.Close()
		all.Wait()
		_, err := l.Hit(t.Context(), "known", time.Minute, 5)
		require.ErrorIs(t, err, throttr.ErrClosed)
		_, err = l.Get(t.Context(), "known", time.Minute)
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.ErrorIs(t, throttr.NewRateLimit(client.Backend()).Reset(t.Context(), "k", time.Minute), throttr.ErrClosed)
	})
}
