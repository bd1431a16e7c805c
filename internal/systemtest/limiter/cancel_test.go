package limiter_test

import (
	"context"
	"errors"
	"math"
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

func TestCanceledHitReportsWhetherItWasCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		l := testkit.Limiter[uint16](t, srv)
		testkit.Hits(t, l, 1, "k", time.Minute, 150) // so that the window is known
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: 10 * time.Millisecond})
		var callers sync.WaitGroup
		var succeeded, notSent, sent atomic.Int64
		for i := range 60 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 700 * time.Microsecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%12)*2300*time.Microsecond)
				defer cancel()
				_, err := l.Hit(ctx, "k", time.Minute, 150)
				switch {
				case err == nil:
					succeeded.Add(1)
				case testkit.SafeToRetry(err):
					notSent.Add(1)
				default:
					sent.Add(1)
				}
				if err != nil && !testkit.Timeout(err) {
					t.Errorf("hit: %v", err)
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Second)
		require.Positive(t, succeeded.Load())
		require.Positive(t, notSent.Load(), "hits canceled in the queue")
		require.Positive(t, sent.Load(), "hits canceled in flight")
		n, ok := srv.Counter(testkit.Keys(srv)[0])
		require.True(t, ok)
		require.EqualValues(t, 1+succeeded.Load()+sent.Load(), math.MaxUint16-n)
	})
}

// The bubble of testing/synctest ends only if no goroutine is left.
func TestCloseEndsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		l := testkit.NewRateLimit(client.Backend())
		testkit.Hits(t, l, 1, "known", time.Minute, 5)
		srv.Inject(mockserver.Fault{Delay: time.Hour})
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				_, err := l.Hit(t.Context(), []string{"known", "new"}[i%2], time.Minute, 1000)
				if !errors.Is(err, throttr.ErrClosed) {
					t.Errorf("hit: %v", err)
				}
			})
			callers.Go(func() {
				if err := l.Reset(t.Context(), "other", time.Minute); !errors.Is(err, throttr.ErrClosed) {
					t.Errorf("reset: %v", err)
				}
			})
		}
		time.Sleep(time.Second)
		client.Close()
		callers.Wait()
		_, err := l.Hit(t.Context(), "known", time.Minute, 5)
		require.ErrorIs(t, err, throttr.ErrClosed)
		_, err = l.Get(t.Context(), "known", time.Minute)
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.ErrorIs(t, testkit.NewRateLimit(client.Backend()).Reset(t.Context(), "k", time.Minute), throttr.ErrClosed)
	})
}
