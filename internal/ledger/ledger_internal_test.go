package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// A count that is not needed any more is removed, with its timer, and used for another key.
func TestCountsAreRemoved(t *testing.T) {
	now := time.Second
	l := New(3, func() time.Duration { return now })
	o := l.Owner(1)
	for i := range 10 {
		var p Place
		granted, _, err := o.Take(&p, fmt.Sprint(i), "", 1, 1, false)
		require.NoError(t, err)
		require.True(t, granted)
		require.True(t, p.Release())
	}
	require.Zero(t, l.counts.Load())
	claim := window.Claim{Process: "p", Seq: 1, Lease: time.Second, Wants: []window.Want{{N: 1, Max: 1}}}
	for i := range 3 {
		claim.Key = fmt.Sprint(i)
		require.NoError(t, l.Exchange(&claim).Err)
	}
	claim.Key = "more"
	require.ErrorIs(t, l.Exchange(&claim).Err, window.ErrFull)
	now += time.Second // nobody has renewed them
	require.NoError(t, l.Exchange(&claim).Err)
	require.EqualValues(t, 1, l.counts.Load())
}
