package fixedwindow

import (
	"container/heap"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
)

// idleReaper returns a reaper that does not run, and an entry of it.
func idleReaper(max int) (*reaper[uint16], *entry[uint16]) {
	b := &Backend[uint16]{group: coalesce.NewGroup(coalesce.Options{Now: time.Now}), now: time.Now}
	b.table.init(8)
	r := newReaper(b, nil, max, 256)
	t, _ := timingOf(time.Minute, 1<<16-1) // its margin is 5.535 s
	e := &entry[uint16]{backend: b, reaper: r, timing: t}
	e.coalescer = b.group.New(e)
	return r, e
}

// popFirst removes and returns the first record of the queue, as due does.
func (p *reaper[T]) popFirst() *record[T] {
	return heap.Pop(&p.queue).(*record[T])
}

func TestRecordIsQueuedOncePerName(t *testing.T) {
	p, e := idleReaper(2)
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	grace := e.timing.grace()
	require.NoError(t, p.reserve())
	p.add(e, 7, at(100))
	require.NoError(t, p.reserve())
	require.ErrorIs(t, p.reserve(), ErrTooManyWindows)
	p.add(e, 7, at(130)) // a Set
	require.Equal(t, 1, p.reserved)
	require.Len(t, p.queue, 1)
	r := p.popFirst()
	require.Equal(t, at(100).Add(grace), r.due)

	p.postpone(r, at(129)) // seen before the Set was
	require.Equal(t, at(130).Add(grace), p.popFirst().due)
	p.postpone(r, at(150)) // another client's Set
	require.Equal(t, at(150).Add(grace), p.popFirst().due)
	require.Equal(t, 1, p.reserved)

	p.done(r)
	require.Zero(t, p.reserved)
	require.Empty(t, p.queue)
	require.Empty(t, e.records)
}

func TestRecordInsertedDuringItsRemovalIsRemovedAgain(t *testing.T) {
	p, e := idleReaper(2)
	require.NoError(t, p.reserve())
	p.add(e, 7, time.Unix(100, 0))
	r := p.popFirst() // not found
	require.NoError(t, p.reserve())
	p.add(e, 7, time.Unix(200, 0)) // a Set
	p.done(r)
	require.Equal(t, 1, p.reserved)
	require.Len(t, e.records, 1)
	require.Equal(t, time.Unix(200, 0).Add(e.timing.grace()), p.popFirst().due)
	p.done(r)
	require.Zero(t, p.reserved)
	require.Empty(t, e.records)
}

//evidence:bounds Attempts to remove a record
func TestFailedRemovalIsRetriedUntilTheTTLHasRunOut(t *testing.T) {
	p, e := idleReaper(2)
	end := time.Unix(100, 0)
	expiry := end.Add(e.timing.duration(e.timing.margin))
	require.NoError(t, p.reserve())
	p.add(e, 7, end)
	r := p.popFirst()
	p.retryAt(r, expiry.Add(-1))
	require.Same(t, r, p.popFirst())
	require.NoError(t, p.reserve())
	p.add(e, 7, end.Add(time.Minute))
	p.retryAt(r, expiry) // another is under the name by now
	require.Same(t, r, p.popFirst())
	require.Equal(t, 1, p.reserved)
	r.next = time.Time{}
	p.retryAt(r, expiry.Add(time.Minute))
	require.Zero(t, p.reserved)
	require.Empty(t, p.queue)
}
