package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// tested is a ledger for three counts, and what its claims have in common.
type tested struct {
	*Ledger
	now   time.Duration
	seq   uint64
	woken int // wants that wait
}

func newTested() *tested {
	l := &tested{now: time.Second}
	l.Ledger = New(3, func() time.Duration { return l.now })
	return l
}

// claim makes a claim of the place of a process, with a lease of a minute.
func (l *tested) claim(process string, c window.Claim) window.Places {
	l.seq++
	c.Process = process
	c.Seq = l.seq
	c.Lease = time.Minute
	c.Wake = func() { l.woken++ }
	p, wake := l.Exchange(&c)
	if wake != nil {
		wake()
	}
	return p
}

// wants are a want of n places under a Max, which waits.
func wants(most, n uint64) []window.Want { return []window.Want{{N: n, Max: most, Wait: true}} }

// A count that is not needed any more is removed.
func TestCountsAreRemoved(t *testing.T) {
	l := newTested()
	for i := range 10 {
		require.Len(t, l.claim("p", window.Claim{Key: fmt.Sprint(i), Wants: wants(1, 1)}).Tokens, 1)
		require.NoError(t, l.claim("p", window.Claim{Key: fmt.Sprint(i)}).Err)
	}
	require.Empty(t, l.counts)
	for i := range 4 {
		err := l.claim("p", window.Claim{Key: fmt.Sprint(i), Wants: wants(1, 1)}).Err
		require.Equal(t, i == 3, err == window.ErrFull)
	}
	require.NoError(t, l.claim("", window.Claim{Key: "more"}).Err, "it is read")
	l.now += time.Minute // nobody has renewed them
	require.NoError(t, l.claim("p", window.Claim{Key: "more", Wants: wants(1, 1)}).Err)
	require.Len(t, l.counts, 1)
}

// The first in line is woken once, when there is room for it, until it asks again. It may have become the first.
func TestWhoeverIsWokenInVainIsNotWokenAgain(t *testing.T) {
	l := newTested()
	l.claim("holds", window.Claim{Wants: wants(5, 5)})
	for range 2 {
		l.claim("waits", window.Claim{Wants: wants(5, 2)})
		for i, woken := range []int{0, 0, 1, 1} { // there is no room before
			l.claim("holds", window.Claim{Held: uint64(5 - i), HeldMax: 5})
			require.Equal(t, woken, l.woken)
		}
		l.claim("holds", window.Claim{Held: 5, HeldMax: 5})
		l.woken = 0
	}
	l.claim("holds", window.Claim{Held: 4, HeldMax: 5})
	require.Zero(t, l.woken)
	require.Equal(t, time.Minute, l.claim("small", window.Claim{Wants: wants(5, 1)}).Next)
	l.claim("waits", window.Claim{})
	require.Equal(t, 1, l.woken)
}
