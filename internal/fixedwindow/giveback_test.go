package fixedwindow

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// bucketAlgorithms are the algorithms whose windows are kept in the records of buckets.
var bucketAlgorithms = []window.Algorithm{window.AlignedWindow, window.SlidingWindow}

// taker makes calls of a client that must succeed, about one key and scale.
type taker[T codec.Value] struct {
	*testing.T
	*Backend[T]
	algorithm window.Algorithm
	key       string
	scale     time.Duration
}

// takerOf returns a client of its own with an algorithm. It remembers no denials.
func takerOf[T codec.Value](t *testing.T, srv *mockserver.Server, a window.Algorithm, scale time.Duration) taker[T] {
	o := options[T](t, srv)
	o.DenialMemory = -1
	return taker[T]{t, start(t, o), a, "k", scale}
}

func (c taker[T]) take(limit, n uint64) (w window.Window, granted bool) {
	c.Helper()
	w, _, err := c.Backend.Take(c.Context(), c.key, limitOf(c.algorithm, c.scale, limit), n)
	require.NoError(c, err)
	return w, !w.Refused
}

// granted makes a take that must be granted, and returns the ID of its window.
func (c taker[T]) granted(limit, n uint64) (id int64) {
	c.Helper()
	w, granted := c.take(limit, n)
	require.True(c, granted, "%+v", w)
	return w.ID
}

func (c taker[T]) giveBack(id int64, n uint64) (given bool) {
	c.Helper()
	given, _, err := c.Backend.GiveBack(c.Context(), c.key, limitOf(c.algorithm, c.scale, 1), n, id)
	require.NoError(c, err)
	return given
}

func (c taker[T]) reset() {
	c.Helper()
	_, err := c.Backend.Reset(c.Context(), c.key, limitOf(c.algorithm, c.scale, 1))
	require.NoError(c, err)
}

func (c taker[T]) set(count uint64) window.Window {
	c.Helper()
	w, _, err := c.Backend.Set(c.Context(), c.key, limitOf(c.algorithm, c.scale, 1), count)
	require.NoError(c, err)
	return w
}

// count returns the count of the window.
func (c taker[T]) count() uint64 {
	c.Helper()
	w, _, err := c.Backend.Peek(c.Context(), c.key, limitOf(c.algorithm, c.scale, 1), 0)
	require.NoError(c, err)
	return w.Count
}

// forBuckets runs a test in a bubble for each algorithm with buckets, with a server of its own, at the
// beginning of a bucket.
func forBuckets(t *testing.T, scale time.Duration, test func(t *testing.T, srv *mockserver.Server, a window.Algorithm)) {
	for _, a := range bucketAlgorithms {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				alignTo(scale)
				test(t, srv, a)
			})
		})
	}
}

// Another client resets the window, and others count in the next one. Nothing of a take before is given
// back to it, however high its count is.
func TestNothingIsGivenBackAfterAResetByAnotherClient(t *testing.T) {
	// The scale is long enough for the units to be those of the names.
	t.Run("uint8, seconds", func(t *testing.T) { testGiveBackAfterReset[uint8](t, time.Second) })
	t.Run("uint16, seconds", func(t *testing.T) { testGiveBackAfterReset[uint16](t, time.Second) })
	t.Run("uint32, microseconds", func(t *testing.T) { testGiveBackAfterReset[uint32](t, time.Microsecond) })
	t.Run("uint64, nanoseconds", func(t *testing.T) { testGiveBackAfterReset[uint64](t, time.Nanosecond) })
}

func testGiveBackAfterReset[T codec.Value](t *testing.T, unit time.Duration) {
	const scale = 20 * time.Second
	for name, end := range map[string]func(c taker[T]){
		"Reset":     func(c taker[T]) { c.reset(); c.granted(100, 9) },
		"Set":       func(c taker[T]) { c.set(9) },
		"no window": func(c taker[T]) { c.reset() },
	} {
		for _, a := range bucketAlgorithms {
			t.Run(fmt.Sprint(name, ", ", a), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := inMemory(t, mockserver.WithValueSize(codec.Size[T]()))
					alignTo(scale)
					one, two := takerOf[T](t, srv, a, scale), takerOf[T](t, srv, a, scale)
					id := one.granted(100, 5)
					time.Sleep(2*unit + 1)
					end(two)
					want, updates := two.count(), srv.Requests(codec.OpUpdate)
					require.False(t, one.giveBack(id, 5))
					require.Equal(t, updates, srv.Requests(codec.OpUpdate), "not even for a moment")
					require.Equal(t, want, two.count())

					next := one.granted(100, 1) // in the next window
					require.NotEqual(t, id, next)
					require.False(t, one.giveBack(id, 5))
					require.True(t, one.giveBack(next, 1))
					require.Equal(t, want, two.count())
				})
			})
		}
	}
}

// A window is known to be another one, even if the client has seen in between that there was none.
func TestNothingIsGivenBackToAWindowAfterNone(t *testing.T) {
	const scale = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		alignTo(scale)
		one, two := takerOf[uint16](t, srv, window.SlidingWindow, scale), takerOf[uint16](t, srv, window.SlidingWindow, scale)
		two.granted(100, 50)
		time.Sleep(scale)
		id := one.granted(100, 5)
		for _, name := range windowKeys(srv) { // the bucket before is left
			if n, _ := ParseName([]byte(name)); n.Bucket == time.Now().UnixNano()/int64(scale) {
				srv.Delete(name)
			}
		}
		_, granted := one.take(50, 1) // reads the records
		require.False(t, granted)
		two.granted(100, 9)
		require.False(t, one.giveBack(id, 5))
		require.EqualValues(t, 59, two.count())
	})
}

// whenAsked runs f when a client is about to send its n-th call from now on.
func (s *counting[T]) whenAsked(n int64, f func()) {
	at := s.calls.Load() + n
	s.before = func() {
		if s.calls.Load() == at {
			f()
		}
	}
}

// The window is reset between the read of a give-back and its addition. The counter of the next one
// neither wraps nor loses anything.
func TestAResetDuringAGiveBackChangesNoCount(t *testing.T) {
	const scale = 10 * time.Second
	for _, next := range []uint64{1, 4, 5, 9} {
		t.Run(fmt.Sprintf("next count %d", next), func(t *testing.T) {
			t.Run("uint8", func(t *testing.T) { testResetDuringAGiveBack[uint8](t, 2*scale, next) })
			t.Run("uint16", func(t *testing.T) { testResetDuringAGiveBack[uint16](t, scale, next) })
			t.Run("uint64", func(t *testing.T) { testResetDuringAGiveBack[uint64](t, scale, next) })
		})
	}
}

func testResetDuringAGiveBack[T codec.Value](t *testing.T, scale time.Duration, next uint64) {
	for _, a := range bucketAlgorithms {
		synctest.Test(t, func(t *testing.T) {
			srv := inMemory(t, mockserver.WithValueSize(codec.Size[T]()))
			alignTo(scale)
			o := options[T](t, srv)
			server := &counting[T]{Server: o.Servers[0]}
			o.Servers[0] = server
			one, two := taker[T]{t, start(t, o), a, "k", scale}, takerOf[T](t, srv, a, scale)
			id := one.granted(100, 5)
			time.Sleep(5 * time.Second)
			server.whenAsked(2, func() {
				two.reset()
				two.granted(100, next)
			})
			require.False(t, one.giveBack(id, 5))
			require.Equal(t, next, two.count())
			require.False(t, one.giveBack(id, 5))
			one.granted(100, 3)
			require.Equal(t, next+3, two.count())
		})
	}
}

// Nothing is given back once the window does not count any more, not even if that is so when the
// addition is about to be sent.
func TestNothingIsGivenBackAfterTheEnd(t *testing.T) {
	const scale = 10 * time.Second
	for _, late := range []int64{1, 2} { // the call before which it is over
		forBuckets(t, scale, func(t *testing.T, srv *mockserver.Server, a window.Algorithm) {
			o := options[uint16](t, srv)
			server := &counting[uint16]{Server: o.Servers[0]}
			o.Servers[0] = server
			c := taker[uint16]{t, start(t, o), a, "k", scale}
			counts := scale
			if a == window.SlidingWindow {
				counts += scale
			}
			id := c.granted(100, 5)
			time.Sleep(counts - 1)
			require.True(t, c.giveBack(id, 1))
			server.whenAsked(late, func() { time.Sleep(time.Nanosecond) })
			require.False(t, c.giveBack(id, 1))
			name := windowKeys(srv)[0]
			quota, _ := srv.Counter(name)
			require.EqualValues(t, math.MaxUint16-4, quota)
		})
	}
}

// A bucket counts in the sliding window for another scale, and so long takes of it can be given back.
func TestGiveBackToTheBucketBefore(t *testing.T) {
	const scale = 10 * time.Second
	for _, hits := range []bool{false, true} {
		t.Run(fmt.Sprintf("with hits since: %v", hits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				alignTo(scale)
				one, two := takerOf[uint16](t, srv, window.SlidingWindow, scale), takerOf[uint16](t, srv, window.SlidingWindow, scale)
				id := one.granted(10, 8)
				time.Sleep(scale + scale/2) // 8 weigh 4
				if hits {
					one.granted(10, 1)
					two.granted(10, 1)
					require.EqualValues(t, 6, two.count())
				}
				require.True(t, one.giveBack(id, 6)) // 2 weigh 1
				want := uint64(1)
				if hits {
					want = 3
				}
				require.Equal(t, want, one.count())
				require.Equal(t, want, two.count())
				w, granted := one.take(10, 10-want)
				require.True(t, granted, "%+v", w)
				require.True(t, one.giveBack(w.ID, 10-want))
				w, granted = two.take(10, 10-want)
				require.True(t, granted, "%+v", w)
				require.True(t, one.giveBack(id, 2))
				updates := srv.Requests(codec.OpUpdate)
				require.False(t, one.giveBack(id, 1), "nothing is left")
				require.Equal(t, updates, srv.Requests(codec.OpUpdate), "it would wrap the counter")
			})
		})
	}
}

func TestNothingIsGivenBackToTheBucketBeforeAfterAReset(t *testing.T) {
	const scale = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		alignTo(scale)
		o := options[uint16](t, srv)
		o.Now = func() time.Time { return time.Now().Add(-5 * time.Second) }
		late := taker[uint16]{t, start(t, o), window.SlidingWindow, "k", scale}
		for _, own := range []bool{false, true} {
			alignTo(scale)
			one, two := takerOf[uint16](t, srv, window.SlidingWindow, scale), takerOf[uint16](t, srv, window.SlidingWindow, scale)
			time.Sleep(scale / 2)
			id := one.granted(100, 8)
			time.Sleep(scale / 2)
			one.granted(100, 1)
			if own {
				one.reset()
			} else {
				two.reset()
			}
			late.granted(100, 9) // in the bucket before
			require.False(t, one.giveBack(id, 6))
			require.EqualValues(t, 9, two.count())
			time.Sleep(3 * scale)
		}
	})
}

// The clocks of client and server may differ in speed. A reservation that is held for long is given back
// nevertheless.
func TestGiveBackWithAClockThatGoesFaster(t *testing.T) {
	const scale = time.Hour
	forBuckets(t, scale, func(t *testing.T, srv *mockserver.Server, a window.Algorithm) {
		o := options[uint16](t, srv)
		begin := time.Now()
		o.Now = func() time.Time { d := time.Since(begin); return begin.Add(d + d/2000) }
		c := taker[uint16]{t, start(t, o), a, "k", scale}
		id := c.granted(100, 5)
		for range 3 {
			time.Sleep(15 * time.Minute)
			require.Equal(t, id, c.granted(100, 5))
		}
		require.True(t, c.giveBack(id, 20))
		require.Zero(t, c.count())
	})
}

// A refused take whose addition is given back after the end of its bucket leaves nothing in a sliding
// window.
func TestRefusedTakeAtTheEndOfABucketIsGivenBack(t *testing.T) {
	const scale = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		alignTo(scale)
		o := options[uint16](t, srv)
		server := &counting[uint16]{Server: o.Servers[0]}
		o.Servers[0] = server
		one, two := taker[uint16]{t, start(t, o), window.SlidingWindow, "k", scale}, takerOf[uint16](t, srv, window.SlidingWindow, scale)
		one.granted(10, 1)
		two.granted(10, 9)
		time.Sleep(scale - 1)
		server.whenAsked(2, func() { time.Sleep(time.Nanosecond) })
		_, granted := one.take(10, 9) // one knows of 1
		require.False(t, granted)
		synctest.Wait()
		require.EqualValues(t, 10, two.count())
	})
}

// What is given back to a fixed window is in it still: in another one nothing changes, and no counter wraps
// (H3).
func TestAGiveBackToAFixedWindowThatHasChanged(t *testing.T) {
	const scale = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		one := takerOf[uint16](t, srv, window.FixedWindow, scale)
		first := one.granted(10, 5)
		for _, name := range srv.Keys() { // somebody else has given back
			if quota, _ := srv.Counter(name); quota == math.MaxUint16-5 {
				ttl, _ := srv.TTL(name)
				srv.Set(name, math.MaxUint16-2, ttl)
			}
		}
		require.False(t, one.giveBack(first, 5))
		require.EqualValues(t, 2, one.count())
		require.True(t, one.giveBack(first, 1))
		require.EqualValues(t, 1, one.count())
		time.Sleep(scale)
		second := one.granted(10, 5)
		require.False(t, one.giveBack(first, 1), "the window is over")
		require.EqualValues(t, 5, one.count())
		require.True(t, one.giveBack(second, 1))
	})
}

// A refused take is given back even if its caller does not wait for that. What follows finds the room.
func TestCallersDoNotWaitForGiveBacksLongerThanTheirContext(t *testing.T) {
	const scale, patience = time.Hour, 200 * time.Millisecond
	for _, a := range []window.Algorithm{window.FixedWindow, window.SlidingWindow} {
		for name, call := range map[string]func(ctx context.Context, b *Backend[uint16]) (refused bool, err error){
			"Take": func(ctx context.Context, b *Backend[uint16]) (bool, error) {
				w, _, err := b.Take(ctx, "k", limitOf(a, scale, 10), 5)
				return w.Refused, err
			},
			"TakeAll": func(ctx context.Context, b *Backend[uint16]) (bool, error) {
				takes := []window.Take{limitOf(a, scale, 10).For("a", 5), limitOf(a, scale, 10).For("k", 5)}
				granted, _, err := b.TakeAll(ctx, takes, make([]window.Window, 2))
				return !granted, err
			},
		} {
			t.Run(a.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := inMemory(t)
					var backends []*Backend[uint16]
					for range 2 {
						o := options[uint16](t, srv)
						backends = append(backends, start(t, o))
					}
					b, other := backends[0], backends[1]
					for _, key := range []string{"a", "k"} {
						w, _, err := b.Take(t.Context(), key, limitOf(a, scale, 10), 1)
						require.NoError(t, err)
						require.False(t, w.Refused)
					}
					w, _, err := other.Take(t.Context(), "k", limitOf(a, scale, 10), 6) // b does not know of it
					require.NoError(t, err)
					require.False(t, w.Refused)

					remove := srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: skipOf(name), Delay: 400 * time.Millisecond})
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					refused, err := call(ctx, b)
					require.NoError(t, err)
					require.True(t, refused)
					require.LessOrEqual(t, time.Since(began), patience)
					time.Sleep(10 * time.Second)
					remove()
					w, _, err = other.Peek(t.Context(), "k", limitOf(a, scale, 1), 0)
					require.NoError(t, err)
					require.EqualValues(t, 7, w.Count)
					w, _, err = other.Peek(t.Context(), "a", limitOf(a, scale, 1), 0)
					require.NoError(t, err)
					require.EqualValues(t, 1, w.Count)
				})
			})
		}
	}
}

// skipOf returns how many UPDATEs a call makes before it gives back.
func skipOf(call string) int {
	if call == "TakeAll" {
		return 2
	}
	return 1
}
