package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// A count that is not needed any more is removed.
func TestCountsAreRemoved(t *testing.T) {
	now := time.Second
	l := New(3, func() time.Duration { return now })
	for i := range uint64(10) {
		p := l.Exchange(&window.Claim{Key: fmt.Sprint(i), Process: "p", Seq: 1, Lease: Forever, Wants: []window.Want{{N: 1, Max: 1}}})
		require.NoError(t, p.Err)
		require.Positive(t, p.Tokens[0])
		require.NoError(t, l.Exchange(&window.Claim{Key: fmt.Sprint(i), Process: "p", Seq: 2, Lease: Forever}).Err)
	}
	require.Empty(t, l.counts)
	claim := window.Claim{Process: "p", Seq: 1, Lease: time.Second, Wants: []window.Want{{N: 1, Max: 1}}}
	for i := range 3 {
		claim.Key = fmt.Sprint(i)
		require.NoError(t, l.Exchange(&claim).Err)
	}
	claim.Key = "more"
	require.ErrorIs(t, l.Exchange(&claim).Err, window.ErrFull)
	now += time.Second // nobody has renewed them
	require.NoError(t, l.Exchange(&claim).Err)
	require.Len(t, l.counts, 1)
}

// The places of a process whose lease does not end are listed without one.
func TestPlacesWithoutALeaseAreListed(t *testing.T) {
	l := New(3, func() time.Duration { return time.Second })
	l.Exchange(&window.Claim{Key: "k", Name: "n", Process: "p", Seq: 1, Lease: Forever, Held: 2, HeldMax: 2})
	l.EachPlaces(nil, func(p window.ListedPlaces) bool {
		require.Equal(t, window.ListedPlaces{Key: "k", Name: "n", Used: 2, ByProcess: []window.Holder{{Process: "p", Held: 2}}}, p)
		return true
	})
}

// The first in line is woken once, when there is room for it, until it asks again.
func TestWhoeverIsWokenInVainIsNotWokenAgain(t *testing.T) {
	now, woken := time.Second, 0
	l := New(3, func() time.Duration { return now })
	seq := uint64(0)
	claim := func(process string, held uint64, wants ...window.Want) {
		seq++
		l.Exchange(&window.Claim{Process: process, Seq: seq, Lease: time.Minute, Held: held, HeldMax: 5, Wants: wants, Wake: func() { woken++ }})
	}
	claim("holds", 0, window.Want{N: 5, Max: 5})
	for range 2 {
		claim("waits", 0, window.Want{N: 2, Max: 5, Wait: true})
		claim("holds", 5)
		claim("holds", 4)
		require.Zero(t, woken, "there is no room")
		claim("holds", 3)
		claim("holds", 2)
		require.Equal(t, 1, woken)
		claim("holds", 5)
		woken = 0
	}
}

// A process to which something was granted goes to the end of the line, so that a large want is not overtaken for ever.
func TestWhoeverIsGrantedSomethingGoesToTheEndOfTheLine(t *testing.T) {
	l := New(3, func() time.Duration { return time.Second })
	seq := uint64(0)
	claim := func(process string, held uint64, wants ...uint64) (granted int) {
		seq++
		c := window.Claim{Process: process, Seq: seq, Lease: time.Minute, Held: held, HeldMax: 4}
		for _, n := range wants {
			c.Wants = append(c.Wants, window.Want{N: n, Max: 4, Wait: true})
		}
		for _, token := range l.Exchange(&c).Tokens {
			granted += int(min(token, 1))
		}
		return granted
	}
	require.Equal(t, 1, claim("holds", 0, 4))
	require.Zero(t, claim("small", 0, 1, 1))
	require.Zero(t, claim("large", 0, 4))
	claim("holds", 3)
	require.Equal(t, 1, claim("small", 0, 1, 1))
	claim("holds", 0)
	require.Zero(t, claim("small", 1, 1), "there is room, but the other one is first")
	claim("small", 0)
	require.Equal(t, 1, claim("large", 0, 4))
}

// Places that the store does not know must fit under a Max of those that are held, and not of earlier ones.
func TestTheLargestMaxIsForgottenWithItsPlaces(t *testing.T) {
	l := New(3, func() time.Duration { return time.Second })
	for i, c := range []window.Claim{
		{Process: "a", Wants: []window.Want{{N: 5, Max: 5}}},
		{Process: "b", Wants: []window.Want{{N: 3, Max: 3, Wait: true}}}, // keeps the count
		{Process: "a"},
		{Process: "c", Strict: true, Held: 3, HeldMax: 3},
		{Process: "d", Strict: true, Held: 1, HeldMax: 3},
	} {
		c.Seq, c.Lease = uint64(i+1), time.Minute
		require.Equal(t, c.Process == "d", l.Exchange(&c).Lost, c.Process)
	}
}
