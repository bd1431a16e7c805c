package fixedwindow

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
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
		s, err := b.slotsFor(t.Context(), "k", &l, 1) // so that Peek and Reset have the same
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
