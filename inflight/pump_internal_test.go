package inflight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// An answer that arrives after the time of what was held is over does not bring it back, although the store has
// renewed it: the holder may have seen that it is not valid.
func TestWhatIsLostStaysLost(t *testing.T) {
	p := &pump{lease: time.Second}
	w := &want{n: 1, max: 1}
	p.add(w)
	p.claim(0)
	p.answered(time.Millisecond, &window.Places{Tokens: []uint64{7}, Used: 1})
	require.Equal(t, held, w.state)
	end := p.end()
	require.Less(t, end, time.Second)
	p.decided = nil

	p.claim(900 * time.Millisecond)
	p.answered(end, &window.Places{Used: 1})
	require.Equal(t, gone, w.state)
	require.True(t, w.lost.Load())
	require.Equal(t, []decision{{w, gone, ErrLost}}, p.decided)
	require.Zero(t, p.held)
	require.Zero(t, p.due(), "the store is told")
	require.Zero(t, p.claim(end).Held)
}

// Whoever waits behind others needs no exchange.
func TestWantsBehindOneThatWaitsAskNobody(t *testing.T) {
	p := &pump{lease: time.Second}
	first := &want{n: 1, max: 1, wait: true}
	p.add(first)
	p.claim(0)
	p.answered(time.Millisecond, &window.Places{Used: 1, Waiting: 1})
	require.Positive(t, p.due())
	second, third := &want{n: 1, max: 1, wait: true}, &want{n: 1, max: 1}
	p.add(second)
	p.add(third)
	require.Equal(t, refused, third.state)
	require.Positive(t, p.due())
	p.cancel(first)
	require.Zero(t, p.due(), "the store keeps room for the first in line")
}

func TestALeaseIsRenewedSoThatThreeQuartersAreLeft(t *testing.T) {
	for _, lease := range []time.Duration{window.MinLease, time.Second, DefaultLease, window.MaxLease} {
		require.GreaterOrEqual(t, termOf(lease)-share(lease, renewShare), lease*3/4)
		require.Less(t, termOf(lease), lease)
	}
}

// A want that is given up during its exchange does not keep others from asking, and the store is told.
func TestAWantThatIsGivenUpDuringItsExchangeBlocksNobody(t *testing.T) {
	p := &pump{lease: time.Second}
	first, second := &want{n: 2, max: 2, wait: true}, &want{n: 1, max: 2}
	p.add(first)
	p.claim(0)
	p.cancel(first)
	p.add(second)
	p.answered(time.Millisecond, &window.Places{Used: 1, Waiting: 1})
	require.Equal(t, waiting, second.state)
	require.Zero(t, p.due())
	require.Equal(t, []window.Want{{N: 1, Max: 2}}, p.claim(time.Millisecond).Wants)
	p.answered(2*time.Millisecond, &window.Places{Tokens: []uint64{7}, Used: 2})
	require.Equal(t, held, second.state)

	p = &pump{lease: time.Second}
	p.add(first)
	first.state = waiting
	p.claim(0)
	p.cancel(first)
	p.answered(time.Millisecond, &window.Places{Used: 1, Waiting: 1})
	require.Zero(t, p.due(), "the store keeps a place in line for nobody")
}

// A place that is granted to a caller that has gone is given back at once, and not after a lease.
func TestAGrantToNobodyIsGivenBack(t *testing.T) {
	p := &pump{lease: time.Second}
	w := &want{n: 1, max: 1, wait: true}
	p.add(w)
	p.claim(0)
	p.cancel(w)
	p.answered(time.Millisecond, &window.Places{Tokens: []uint64{7}, Used: 1})
	require.Equal(t, gone, w.state)
	require.Zero(t, p.held)
	require.False(t, p.idle(time.Millisecond))
	require.Zero(t, p.due())
	require.Zero(t, p.claim(time.Millisecond).Held)
}
