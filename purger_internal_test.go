package throttr

import (
	"container/heap"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// idlePurger returns a purger that removes nothing by itself, and a lane of its.
func idlePurger(max int) (*purger[uint16], *lane[uint16]) {
	b := &ServerBackend[uint16]{}
	b.lanes.init(8)
	p := &purger[uint16]{}
	p.init(b, max)
	tm, _ := timingOf(time.Minute, 1<<16-1) // its margin is 5.535 s
	return p, &lane[uint16]{backend: b, purger: p, timing: tm}
}

// takeFirst takes the first record to remove, as collect does.
func (p *purger[T]) takeFirst() *ownedRecord[T] {
	return heap.Pop(&p.due).(*ownedRecord[T])
}

func TestARecordIsOwnedOnceUnderItsName(t *testing.T) {
	p, l := idlePurger(2)
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	slack := l.timing.slack()
	require.NoError(t, p.reserve())
	p.add(l, 7, at(100))
	require.NoError(t, p.reserve())
	require.ErrorIs(t, p.reserve(), ErrOverloaded)
	p.add(l, 7, at(130)) // a Set
	require.Equal(t, 1, p.claimed)
	require.Len(t, p.due, 1)
	r := p.takeFirst()
	require.Equal(t, at(100).Add(slack), r.due)

	p.live(r, at(129)) // seen before the Set was
	require.Equal(t, at(130).Add(slack), p.takeFirst().due)
	p.live(r, at(150)) // another client's Set
	require.Equal(t, at(150).Add(slack), p.takeFirst().due)
	require.Equal(t, 1, p.claimed)

	p.done(r)
	require.Zero(t, p.claimed)
	require.Empty(t, p.due)
	require.Empty(t, l.owned)
}

func TestARecordThatIsMadeAgainWhileItIsRemovedIsRemovedAgain(t *testing.T) {
	p, l := idlePurger(2)
	require.NoError(t, p.reserve())
	p.add(l, 7, time.Unix(100, 0))
	r := p.takeFirst() // not found
	require.NoError(t, p.reserve())
	p.add(l, 7, time.Unix(200, 0)) // a Set
	p.done(r)
	require.Equal(t, 1, p.claimed)
	require.Len(t, l.owned, 1)
	require.Equal(t, time.Unix(200, 0).Add(l.timing.slack()), p.takeFirst().due)
	p.done(r)
	require.Zero(t, p.claimed)
	require.Empty(t, l.owned)
}

func TestARemovalIsTriedAgainUntilTheTTLHasDoneIt(t *testing.T) {
	p, l := idlePurger(2)
	end := time.Unix(100, 0)
	expiry := end.Add(l.timing.duration(l.timing.margin))
	require.NoError(t, p.reserve())
	p.add(l, 7, end)
	r := p.takeFirst()
	p.again(r, expiry.Add(-1))
	require.Same(t, r, p.takeFirst())
	require.NoError(t, p.reserve())
	p.add(l, 7, end.Add(time.Minute))
	p.again(r, expiry) // another is under the name by now
	require.Same(t, r, p.takeFirst())
	require.Equal(t, 1, p.claimed)
	r.next = time.Time{}
	p.again(r, expiry.Add(time.Minute))
	require.Zero(t, p.claimed)
	require.Empty(t, p.due)
}
