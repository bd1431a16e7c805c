package rediswindow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/window"
)

// A proxy to several servers refuses keys that are on different ones, as in a TakeAll. That is not an error of
// the calls that share its request.
func TestCallsThatShareARequestWithATakeAllOnAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.proxy = true
		b := New(c)
		defer b.Close()
		var all sync.WaitGroup
		for range maxInFlight {
			all.Go(func() { b.Take(t.Context(), "first", fixed, 1) })
			synctest.Wait()
		}
		all.Go(func() {
			b.TakeAll(t.Context(), []window.Take{fixed.For("a", 1), fixed.For("b", 1)}, make([]window.Window, 2))
		})
		var err error
		all.Go(func() { _, err = b.Take(t.Context(), "a", fixed, 1) })
		synctest.Wait()
		c.thaw()
		all.Wait()
		require.NoError(t, err)
	})
}

// refusing is a client of a server that refuses scripts, once it responds.
type refusing struct{ *fakeClient }

func (c refusing) EvalSHA(_ context.Context, _ string, keys, _ []string) (string, error) {
	c.wait(keys)
	return "", errors.New("ERR no")
}

func TestNothingThatIsQueuedIsSentAfterClose(t *testing.T) {
	for name, call := range map[string]func(b *Backend, i int){
		"Ping": func(b *Backend, _ int) { b.Ping(context.Background()) },
		"Exchange": func(b *Backend, i int) {
			claim := window.Claim{Key: fmt.Sprint(i), Process: "p", Seq: 1, Lease: window.MinLease, Wants: []window.Want{{N: 1, Max: 1}}}
			b.Exchange(context.Background(), []window.Claim{claim}, make([]window.Places, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				b := New(refusing{c})
				var all sync.WaitGroup
				for i := range maxInFlight + 1 {
					all.Go(func() { call(b, i) })
				}
				synctest.Wait()
				require.Len(t, c.requests(), maxInFlight)
				b.Close()
				c.thaw()
				all.Wait()
				require.Len(t, c.requests(), maxInFlight)
			})
		})
	}
}

// silent is a client of a store that is away.
type silent struct{ *fakeClient }

func (silent) EvalSHA(context.Context, string, []string, []string) (string, error) {
	return "", window.ErrUnavailable
}

func (silent) Subscribe(ctx context.Context, _ string, _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestASubscriptionIsNotNeededForThoseWhoHaveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(silent{newFake()})
		defer b.Close()
		l := inflight.New(b, inflight.WithLogger(nil), inflight.WithTimeout(50*time.Millisecond))
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := l.Acquire(ctx, fmt.Sprint(i), inflight.Limit{Max: 1, Lease: 50 * time.Millisecond}, 1)
			cancel()
			require.Error(t, err)
		}
		l.Close()
		time.Sleep(time.Second)
		require.False(t, b.wakes.needed())
	})
}
