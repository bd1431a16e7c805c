package fixedwindow

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

func TestLoneHitAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("a sync.Pool loses elements")
	}
	bands, ok := slot.BandsFor(time.Hour, math.MaxUint16)
	require.True(t, ok)
	o := options(t, inMemory(t))
	count := uint64(0)
	o.Servers[0] = &hooked{Server: o.Servers[0], do: func(_ context.Context, cl *conn.Call) (done, sent bool, err error) {
		count++
		r := conn.Response{OK: true, Quota: math.MaxUint16 - count, TTL: conn.TTL{Amount: bands.Top - 1}}
		cl.Responses = append(cl.Responses, r, r)
		return true, true, nil
	}}
	b := start(t, o)
	hits(t, b, 1, "k", fixed(time.Hour, 10_000))
	for limit, asks := range map[uint64]uint64{10_000: 1001, 0: 0} { // those of limit 0 are denied from memory
		before := count
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			if w, _, err := b.Hit(t.Context(), "k", fixed(time.Hour, limit), 1); err != nil || w.Count == 0 {
				t.Error(w, err)
			}
		}))
		require.Equal(t, before+asks, count)
	}
}

func TestCallsThatDoNothingAreNotRemembered(t *testing.T) {
	b := client(t, inMemory(t))
	_, _, err := b.Peek(t.Context(), "k", fixed(time.Minute, 1), 0)
	require.NoError(t, err)
	require.Zero(t, b.Stats(), "Peek opens no window")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = b.Hit(ended, "k", fixed(time.Minute, 1), 1)
	require.ErrorIs(t, err, context.Canceled)
	b.Close()
	_, _, err = b.Hit(t.Context(), "k", fixed(time.Minute, 1), 1)
	require.ErrorIs(t, err, window.ErrClosed)
	require.Zero(t, b.Stats())
}

// TTLs show the end of a window to a unit only, which here is a second. So the window that another
// client opens after a Reset may look like the one before.
func TestEndIsNotTooEarlyAfterAResetByAnotherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t, mockserver.WithValueSize(1))
		l := fixed(10*time.Second, 100)
		hits(t, client(t, srv), 5, "k", l)
		b, other := client(t, srv), client(t, srv)
		time.Sleep(500 * time.Millisecond)
		hits(t, b, 1, "k", l)
		time.Sleep(100 * time.Millisecond)
		_, err := other.Reset(t.Context(), "k", l)
		require.NoError(t, err)
		hits(t, other, 1, "k", l)
		end := time.Now().Add(l.Scale)
		time.Sleep(900 * time.Millisecond)
		w, _, err := b.Hit(t.Context(), "k", l, 1)
		require.NoError(t, err)
		require.EqualValues(t, 2, w.Count)
		require.False(t, w.ExpiresAt.Before(end), "%v is before %v", w.ExpiresAt, end)
	})
}

// A Peek whose responses come after those of a Reset must not bring the old count back: hits would be denied by it.
func TestPeekThatIsOvertakenByAResetIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixed(10*time.Second, 3)
		o := options(t, inMemory(t))
		o.DenialMemory = time.Minute
		hits(t, start(t, o), 6, "k", l)
		server := &hooked{Server: o.Servers[0]}
		release := make(chan struct{})
		server.do = func(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
			server.do = nil // only the Peek is held up
			done, sent, err = server.Server.Do(ctx, cl)
			<-release
			return done, sent, err
		}
		o.Servers = []Server{server}
		b := start(t, o)
		s, err := b.stateFor(t.Context(), "k", &l, 1) // so that Peek and Reset have the same
		require.NoError(t, err)
		var peek sync.WaitGroup
		peek.Go(func() {
			w, _, err := b.Peek(t.Context(), "k", l, 0)
			if err != nil || w.Count <= l.Max || w.ID == 0 {
				t.Errorf("%+v, %v", w, err)
			}
		})
		synctest.Wait()
		_, err = b.Reset(t.Context(), "k", l)
		require.NoError(t, err)
		close(release)
		peek.Wait()
		k := s.current()
		require.False(t, k.maybeOpen(time.Now()))
		require.Positive(t, hits(t, b, 3, "k", l))
	})
}

// A is opened by the first, third and fifth window of a key: a client that knows none of them needs one lookup to open
// the third.
func TestAFirstLookupBeginsWithA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 10 * time.Second
		srv, requests := observed(t)
		b := client(t, srv)
		for range 2 {
			hits(t, b, 1, "k", fixed(scale, 1))
			time.Sleep(scale + time.Millisecond)
		}
		requests.take()
		hits(t, client(t, srv), 1, "k", fixed(scale, 1))
		require.Equal(t, 3, requests.take()[codec.OpQuery], "the third QUERY is that of the action that opens the window")
	})
}

// What another client has counted without a name is ended, too, if the scale is given. All windows are ended at the
// same time.
func TestDeleteEndsWhatOthersHaveCountedWithoutAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b, other := client(t, srv), client(t, srv)
		counts := []struct {
			by    *Backend
			name  string
			scale time.Duration
			left  uint64
		}{
			{b, "login", time.Minute, 0}, {other, "", time.Minute, 0}, {other, "other", time.Minute, 1}, {b, "", time.Hour, 1},
		}
		limitOf := func(i int) window.Limit {
			return window.Limit{Name: counts[i].name, Max: 10, Scale: counts[i].scale, Algorithm: window.FixedWindow}
		}
		for i, c := range counts {
			hits(t, c.by, 1, "k", limitOf(i))
		}
		began := time.Now()
		n, _, err := b.Delete(t.Context(), "k", time.Minute, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Less(t, time.Since(began), 2*time.Second)
		for i, c := range counts {
			require.Equal(t, c.left, countOf(t, client(t, srv), "k", limitOf(i)), "%+v", c)
		}
	})
}

// Of takes that are made in turn, the server of the second one goes away after the first one has counted.
func TestTakesInTurnThatFailMayHaveCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := inMemory(t)
		first := inMemory(t, mockserver.WithObserver(func(e mockserver.Exec) {
			if _, ok := ParseName([]byte(e.Key)); ok && e.Op == codec.OpInsert {
				away.Refuse(true)
				away.Disconnect()
			}
		}))
		b := start(t, options(t, first, away))
		l := fixed(time.Minute, 10)
		granted, sent, err := b.TakeAll(t.Context(), []window.Take{l.For("a", 1), l.For("b", 3)}, make([]window.Window, 2))
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.False(t, granted)
		require.True(t, sent)
		require.Zero(t, countOf(t, b, "b", l), "it was given back")
	})
}

// What is given back to a fixed window is in it still: in another one nothing changes, and no counter wraps
// (H3).
func TestAGiveBackToAFixedWindowThatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b, l := client(t, srv), fixed(10*time.Second, 10)
		giveBack := func(id int64, n uint64) bool {
			given, _, err := b.GiveBack(t.Context(), "k", l, n, id)
			require.NoError(t, err)
			return given
		}
		first := taken(t, b, "k", l, 5).ID
		name := windowKeys(srv)[0]
		ttl, _ := srv.TTL(name)
		srv.Set(name, math.MaxUint16-2, ttl) // somebody else has given back
		require.False(t, giveBack(first, 5))
		require.EqualValues(t, 2, countOf(t, b, "k", l))
		require.True(t, giveBack(first, 1))
		require.EqualValues(t, 1, countOf(t, b, "k", l))
		time.Sleep(l.Scale)
		second := taken(t, b, "k", l, 5).ID
		require.False(t, giveBack(first, 1), "the window is over")
		require.EqualValues(t, 5, countOf(t, b, "k", l))
		require.True(t, giveBack(second, 1))
		other := client(t, srv)
		for range 2 { // then the window is in the same slot
			_, err := other.Reset(t.Context(), "k", l)
			require.NoError(t, err)
			taken(t, other, "k", l, 5)
		}
		require.False(t, giveBack(second, 1), "another client has ended the window")
		require.EqualValues(t, 5, countOf(t, b, "k", l))
	})
}

// A refused take is given back even if its caller does not wait for that. What follows finds the room.
func TestCallersDoNotWaitForGiveBacksLongerThanTheirContext(t *testing.T) {
	const patience = 200 * time.Millisecond
	l := fixed(time.Hour, 10)
	for name, c := range map[string]struct {
		call    func(ctx context.Context, b *Backend) (refused bool, err error)
		updates int // before it gives back
	}{
		"Take": {func(ctx context.Context, b *Backend) (bool, error) {
			w, _, err := b.Take(ctx, "k", l, 5)
			return w.Refused, err
		}, 1},
		"TakeAll": {func(ctx context.Context, b *Backend) (bool, error) {
			granted, _, err := b.TakeAll(ctx, []window.Take{l.For("a", 5), l.For("k", 5)}, make([]window.Window, 2))
			return !granted, err
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				b, other := client(t, srv), client(t, srv)
				taken(t, b, "a", l, 1)
				taken(t, b, "k", l, 1)
				taken(t, other, "k", l, 6) // b does not know of it
				remove := srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: c.updates, Delay: 2 * patience})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				began := time.Now()
				refused, err := c.call(ctx, b)
				require.NoError(t, err)
				require.True(t, refused)
				require.LessOrEqual(t, time.Since(began), patience)
				time.Sleep(10 * time.Second)
				remove()
				require.EqualValues(t, 7, countOf(t, other, "k", l))
				require.EqualValues(t, 1, countOf(t, other, "a", l))
			})
		})
	}
}

func TestRangeErrorsNameFieldBoundAndSize(t *testing.T) {
	for want, err := range map[string]error{
		"throttr: Scale 1.5s is out of range: 1-byte values hold scales of whole units (1 ns to 1 h) " +
			"whose double and 45 s more are at most 255 units; 2-byte values (uint16) would do": scaleError(math.MaxUint8, 1500*time.Millisecond),
		"throttr: Max 256 is out of range: 1-byte values hold at most 255; " +
			"2-byte values (uint16) would do": checkNumber(math.MaxUint8, "Max", 256),
		"throttr: N 4294967296 is out of range: 4-byte values hold at most 4294967295; " +
			"8-byte values (uint64) would do": checkNumber(math.MaxUint32, "N", 1<<32),
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, window.ErrRange)
	}
	require.NoError(t, checkNumber(math.MaxUint8, "Max", 255))
}

// connecting is a Server to which the first connection is made while a call asks for the reason why there is none.
type connecting struct{ *pool.Pool }

// Err implements Server.
func (c connecting) Err() error {
	_ = c.Connect(context.Background())
	return c.Pool.Err()
}

// The value size may become known at any time of a call. Limits and numbers are checked by it all the same.
func TestTheValueSizeBecomesKnownDuringACall(t *testing.T) {
	l := fixed(time.Minute, 100)
	long := fixed(1500*time.Millisecond, 100)
	large := fixed(time.Minute, 1000)
	for name, c := range map[string]struct {
		call func(ctx context.Context, b *Backend) error
		want string // the field that is out of range
	}{
		"hit":          {func(ctx context.Context, b *Backend) error { return errOf(b.Hit(ctx, "k", l, 1000)) }, "N"},
		"hit, scale":   {func(ctx context.Context, b *Backend) error { return errOf(b.Hit(ctx, "k", long, 1)) }, "Scale"},
		"hit, max":     {func(ctx context.Context, b *Backend) error { return errOf(b.Hit(ctx, "k", large, 1)) }, "Max"},
		"take":         {func(ctx context.Context, b *Backend) error { return errOf(b.Take(ctx, "k", l, 1000)) }, "N"},
		"peek":         {func(ctx context.Context, b *Backend) error { return errOf(b.Peek(ctx, "k", l, 1000)) }, "N"},
		"set":          {func(ctx context.Context, b *Backend) error { return errOf(b.Set(ctx, "k", l, 1000)) }, "N"},
		"give back":    {func(ctx context.Context, b *Backend) error { return errOf(b.GiveBack(ctx, "k", l, 1000, 1)) }, "N"},
		"delete":       {func(ctx context.Context, b *Backend) error { return errOf(b.Delete(ctx, "k", long.Scale)) }, "Scale"},
		"take all":     {func(ctx context.Context, b *Backend) error { return takeAll(ctx, b, l.For("k", 1000)) }, "N"},
		"take all, 2":  {func(ctx context.Context, b *Backend) error { return takeAll(ctx, b, l.For("k", 1), long.For("k", 1)) }, "Scale"},
		"charge scale": {func(ctx context.Context, b *Backend) error { return errOf(b.Charge(ctx, "k", long, 1)) }, "Scale"},
		"reset": {func(ctx context.Context, b *Backend) error {
			_, err := b.Reset(ctx, "k", long)
			return err
		}, "Scale"},
		"charge": {func(ctx context.Context, b *Backend) error {
			w, _, err := b.Charge(ctx, "k", l, 1000)
			if w.Count != math.MaxUint8 {
				return fmt.Errorf("%w: the count is %d", err, w.Count)
			}
			return err
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(t)
				o.Calls = conn.NewCalls(nil)
				srv := inMemory(t, mockserver.WithValueSize(1))
				o.Servers = []Server{connecting{newPool(t, o.Calls, parking.Never, srv.Dial)}}
				o.Names = []string{"server 0"}
				err := c.call(t.Context(), start(t, o))
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				var got *window.RangeError
				require.ErrorAs(t, err, &got)
				require.Equal(t, c.want, got.Field)
				require.Equal(t, 1, got.Size)
			})
		})
	}
}

func errOf[T any](_ T, _ bool, err error) error { return err }

func takeAll(ctx context.Context, b *Backend, takes ...window.Take) error {
	return errOf(b.TakeAll(ctx, takes, make([]window.Window, len(takes))))
}
