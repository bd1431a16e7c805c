package fixedwindow

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// instant is a Server that responds at once to calls of DECREASE and QUERY. The count of the
// window is higher by 1 each time.
type instant struct {
	Server
	count, ttl uint64
}

// Do implements Server.
func (s *instant) Do(_ context.Context, cl *conn.Call) (done, sent bool, err error) {
	s.count++
	r := conn.Response{OK: true, Quota: math.MaxUint16 - s.count, TTL: conn.TTL{Amount: s.ttl}}
	for range cl.Len() {
		cl.Responses = append(cl.Responses, r)
	}
	return true, true, nil
}

func TestLoneHitAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("a sync.Pool loses elements")
	}
	o := options(t, inMemory(t))
	server := &instant{Server: o.Servers[0]}
	o.Servers[0] = server
	b := start(t, o)
	bands, ok := slot.BandsFor(time.Hour, math.MaxUint16)
	require.True(t, ok)
	server.ttl = bands.Top - 1
	hits(t, b, 1, "k", fixed(time.Hour, 10_000))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if w, _, err := b.Hit(t.Context(), "k", fixed(time.Hour, 10_000), 1); err != nil || w.Count < server.count {
			t.Error(w, err)
		}
	}))
	count := server.count
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if w, _, err := b.Hit(t.Context(), "k", fixed(time.Hour, 0), 1); err != nil || w.Count == 0 {
			t.Error(w, err)
		}
	}), "denied from memory")
	require.Equal(t, count, server.count)
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
		const scale, limit = 10 * time.Second, 100
		hits(t, client(t, srv), 5, "k", fixed(scale, limit))
		b, other := client(t, srv), client(t, srv)
		time.Sleep(500 * time.Millisecond)
		hits(t, b, 1, "k", fixed(scale, limit))
		time.Sleep(100 * time.Millisecond)
		_, err := other.Reset(t.Context(), "k", fixed(scale, 1))
		require.NoError(t, err)
		hits(t, other, 1, "k", fixed(scale, limit))
		end := time.Now().Add(scale)
		time.Sleep(900 * time.Millisecond)
		w, _, err := b.Hit(t.Context(), "k", fixed(scale, limit), 1)
		require.NoError(t, err)
		require.EqualValues(t, 2, w.Count)
		require.False(t, w.ExpiresAt.Before(end), "%v is before %v", w.ExpiresAt, end)
	})
}

// held is a Server that holds back the responses to calls.
type held struct {
	Server
	release chan struct{} // nil: none
}

// Do implements Server.
func (h *held) Do(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
	release := h.release
	done, sent, err = h.Server.Do(ctx, cl)
	if release != nil {
		<-release
	}
	return done, sent, err
}

// A Peek whose responses come after those of a Reset must not bring the old count back: hits would be denied by it.
func TestPeekThatIsOvertakenByAResetIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = 10 * time.Second, 3
		srv := inMemory(t)
		o := options(t, srv)
		o.DenialMemory = time.Minute
		server := &held{Server: o.Servers[0], release: make(chan struct{})}
		other := start(t, o)
		o.Servers = []Server{server}
		b := start(t, o)
		hits(t, other, 2*limit, "k", fixed(scale, limit))

		l := fixed(scale, 1)
		e, err := b.slotsFor(t.Context(), "k", &l, 1) // so that Peek and Reset have one entry
		require.NoError(t, err)
		var get sync.WaitGroup
		get.Go(func() {
			w, _, err := b.Peek(t.Context(), "k", fixed(scale, 1), 0)
			if err != nil || w.Count <= limit || w.ID == 0 {
				t.Errorf("%+v, %v", w, err)
			}
		})
		synctest.Wait()
		release := server.release
		server.release = nil
		_, err = b.Reset(t.Context(), "k", fixed(scale, 1))
		require.NoError(t, err)
		close(release)
		get.Wait()
		require.False(t, e.maybeOpen(time.Now()))
		require.Positive(t, hits(t, b, limit, "k", fixed(scale, limit)))
	})
}
