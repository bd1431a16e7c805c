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

	"github.com/throttr-go/throttr/window"
)

func TestNothingThatIsQueuedIsSentAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.script = func(string) (string, error) { return "", errors.New("ERR no") }
		b := New(c)
		var all sync.WaitGroup
		for i := range maxAlone + 1 {
			all.Go(func() {
				if i%2 == 0 {
					b.Ping(context.Background())
					return
				}
				b.Exchange(context.Background(), []window.Claim{{Key: fmt.Sprint(i)}}, make([]window.Places, 1))
			})
		}
		synctest.Wait()
		require.Len(t, c.requests(), maxAlone)
		b.Close()
		c.thaw()
		all.Wait()
		require.Len(t, c.requests(), maxAlone)
	})
}

// With -race: an answer may come at any time after the ctx of its caller has ended.
func TestAnAnswerAfterTheCallIsWrittenToNothingOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.stalls = func(string) bool {
			time.Sleep(20 * time.Millisecond)
			return false
		}
		c.script = func(string) (string, error) { return "late", nil }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		claims := []window.Claim{{Key: "k", Process: "p", Seq: 1, Lease: time.Second, Held: 1, HeldMax: 1}}
		require.ErrorIs(t, New(c).Exchange(ctx, claims, make([]window.Places, 1)), context.DeadlineExceeded)
		time.Sleep(20 * time.Millisecond)
	})
}

// A take does not wait for claims, of which there may be many at a time, and claims are not refused because of takes.
func TestPlacesDoNotHoldUpTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newCluster("", WithMaxQueued(1))
		c.thaw()
		c.script = func(digest string) (string, error) {
			time.Sleep(10 * time.Millisecond)
			if digest == windowsScript.digest {
				return string(make([]byte, answerSize)), nil
			}
			return "", nil
		}
		b.askForSlots(t.Context())
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

// Whatever a server sends that is none, such as a proxy, is an error.
func TestAResponseThatIsNoAnswerToClaimsIsAnError(t *testing.T) {
	want := window.Want{N: 1, Max: 5, Wait: true}
	claims := []window.Claim{
		{Process: "p", Seq: 1, Lease: time.Second, Wants: []window.Want{want, {N: 2, Max: 5}, {N: 2, Max: 5}, want}},
		{Process: "p", Seq: 2, Lease: time.Second},
		{},
	}
	var response []byte
	for _, f := range []float64{1e6, 0, 4, 2, 5e5, 0, 1, 9, 2, 10, 0, 0, claimLate, 7, 0, 0, 0, 0, 8, 1, 0, 0} {
		response = appendFloat(response, f)
	}
	places := make([]window.Places, 3)
	require.NoError(t, readPlaces(string(response), claims, places))
	require.Equal(t, []window.Places{
		{Tokens: []uint64{9, 10, 11, 0}, DataSet: 1e6, Used: 4, Waiting: 2, Next: time.Second / 2},
		{Late: true, DataSet: 1e6, Used: 7},
		{DataSet: 1e6, Used: 8, Waiting: 1},
	}, places)
	for end := range response {
		require.Error(t, readPlaces(string(response[:end]), claims, places), "%d bytes", end)
	}
	require.Error(t, readPlaces(string(append(response, 0)), claims, places))
}

// waits has a claim wait in line for a place of "name", and returns how often it was woken since it was asked last.
func waits(b *Backend, answers ...window.Places) (woken func() int) {
	n := 0
	claims := []window.Claim{
		{Process: "p", Lease: time.Minute, Wants: []window.Want{{N: 1, Max: 1, Wait: true}}, Wake: func() { n++ }},
	}
	for _, answer := range answers {
		b.wakes.note(b, claims, []string{"name"}, []window.Places{answer})
	}
	return func() int {
		defer func() { n = 0 }()
		return n
	}
}

// Another process may give back before the answer to a claim that waits has arrived.
func TestWhoeverWaitsIsWokenAlsoBeforeTheAnswer(t *testing.T) {
	before, after, granted := window.Places{}, window.Places{Tokens: []uint64{0}}, window.Places{Tokens: []uint64{1}}
	synctest.Test(t, func(t *testing.T) {
		b := New(newFake())
		defer b.Close()
		for _, test := range []struct {
			answers []window.Places
			woken   int
		}{{nil, 0}, {[]window.Places{before}, 1}, {[]window.Places{before, after}, 1}, {[]window.Places{before, granted}, 0}} {
			woken := waits(b, test.answers...)
			b.wakes.wake("name p")
			b.wakes.wake("name q")
			require.Equal(t, test.woken, woken(), test.answers)
		}
		require.False(t, b.wakes.needed())
		synctest.Wait()
		waits(b, before) // and goes without a word
		require.True(t, b.wakes.needed())
		time.Sleep(time.Minute + 1)
		require.False(t, b.wakes.needed())
	})
}

// Messages may have been lost while there was no subscription, so all who wait ask when it begins again: soon, unless
// the last ones have ended soon.
func TestWhoeverWaitsIsWokenWhenTheSubscriptionHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ends := newFake(), make(chan bool)
		c.subscribe = func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case panics := <-ends:
				if panics {
					panic("the client has a mistake")
				}
				return errors.New("the connection has ended")
			}
		}
		b := New(c)
		defer b.Close()
		woken := waits(b, window.Places{})
		synctest.Wait()
		for i := range 10 {
			time.Sleep(2 * time.Second)
			ends <- i%2 == 0
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			require.Equal(t, 1, woken())
		}
		for range 10 {
			ends <- false
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 9, woken())
	})
}
