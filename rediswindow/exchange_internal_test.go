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
				for i := range maxAlone + 1 {
					all.Go(func() { call(b, i) })
				}
				synctest.Wait()
				require.Len(t, c.requests(), maxAlone)
				b.Close()
				c.thaw()
				all.Wait()
				require.Len(t, c.requests(), maxAlone)
			})
		})
	}
}

// slowCluster is a cluster whose scripts take 10 ms.
type slowCluster struct{ *fakeClient }

func (c slowCluster) Cluster() (bool, error) { return true, nil }

func (c slowCluster) EvalSHA(_ context.Context, digest string, _, _ []string) (string, error) {
	time.Sleep(10 * time.Millisecond)
	if digest == windowsScript.digest {
		return string(make([]byte, answerSize)), nil
	}
	return "", nil
}

// A take does not wait for claims, of which there may be many at a time, and claims are not refused because of takes.
func TestPlacesDoNotHoldUpTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(slowCluster{newFake()}, WithMaxQueued(1))
		claims := make([]window.Claim, 64)
		for i := range claims {
			claims[i] = window.Claim{Key: fmt.Sprint(i), Process: "p", Seq: 1, Lease: time.Minute, Held: 1, HeldMax: 1}
		}
		var exchanges sync.WaitGroup
		for range 4 {
			exchanges.Go(func() {
				err := b.Exchange(context.Background(), claims, make([]window.Places, len(claims)))
				require.NotErrorIs(t, err, window.ErrOverloaded)
			})
		}
		time.Sleep(time.Millisecond)
		begun := time.Now()
		_, err := b.Take(t.Context(), "k", fixed, 1)
		require.NoError(t, err)
		require.Equal(t, 10*time.Millisecond, time.Since(begun))
		exchanges.Wait()
	})
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

// Whatever a server sends that is none, such as a proxy, is an error.
func TestAResponseThatIsNoAnswerToClaimsIsAnError(t *testing.T) {
	want := window.Want{N: 1, Max: 5, Wait: true}
	claims := []window.Claim{
		{Process: "p", Seq: 1, Lease: time.Second, Wants: []window.Want{want, want, {N: 2, Max: 5}}},
		{Process: "p", Seq: 2, Lease: time.Second},
		{},
	}
	var response []byte
	for _, f := range []float64{3e6, 1e6, 0, 4, 2, 3.5e6, 9, 0, 0, claimLate, 7, 0, 0, claimAsks, 8, 1, 0} {
		response = appendFloat(response, f)
	}
	places := make([]window.Places, 3)
	require.NoError(t, readPlaces(string(response), claims, places))
	require.Equal(t, []window.Places{
		{Tokens: []uint64{9, 0, 0}, DataSet: 1e6, Used: 4, Waiting: 2, Next: time.Second / 2},
		{Late: true, DataSet: 1e6, Used: 7},
		{DataSet: 1e6, Used: 8, Waiting: 1},
	}, places)
	for end := range response {
		require.Error(t, readPlaces(string(response[:end]), claims, places), "%d bytes", end)
	}
	require.Error(t, readPlaces(string(append(response, 0)), claims, places))
}

// Another process may give back before the answer to a claim that waits has arrived.
func TestWhoeverWaitsIsWokenAlsoBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(silent{newFake()})
		defer b.Close()
		woken := 0
		claims := []window.Claim{
			{Process: "p", Lease: time.Minute, Wants: []window.Want{{N: 1, Max: 1, Wait: true}}, Wake: func() { woken++ }},
		}
		wake := func(want int) {
			t.Helper()
			woken = 0
			b.wakes.wake("name p")
			b.wakes.wake("name q")
			require.Equal(t, want, woken)
		}
		wake(0)
		for _, answer := range []window.Places{{}, {Tokens: []uint64{0}}} { // before, and after
			b.wakes.note(b, claims, []string{"name"}, []window.Places{answer})
			wake(1)
		}
		b.wakes.note(b, claims, []string{"name"}, []window.Places{{Tokens: []uint64{1}}})
		wake(0)
		require.False(t, b.wakes.needed())
	})
}

// unstable is a client whose subscriptions end.
type unstable struct {
	*fakeClient
	ends chan struct{}
}

func (c unstable) Subscribe(ctx context.Context, _ string, _ func(string)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ends:
		return errors.New("the connection has ended")
	}
}

// Messages may have been lost while there was no subscription, so all who wait ask when it begins again.
func TestWhoeverWaitsIsWokenWhenTheSubscriptionHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := unstable{newFake(), make(chan struct{})}
		b := New(c)
		defer b.Close()
		woken := 0
		claims := []window.Claim{
			{Process: "p", Lease: time.Minute, Wants: []window.Want{{N: 1, Max: 1, Wait: true}}, Wake: func() { woken++ }},
		}
		b.wakes.note(b, claims, []string{"name"}, []window.Places{{}})
		synctest.Wait()
		for i := range 3 {
			c.ends <- struct{}{}
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, i+1, woken)
		}
	})
}
