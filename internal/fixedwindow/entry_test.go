package fixedwindow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

// A window of a minute was read at 100 s, and ends between 160 and 161 s.
func TestAdmitDecidesFromWhatIsKnown(t *testing.T) {
	const join, wait, decided = coalesce.Join, coalesce.Defer, coalesce.Decided
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	hit := func(limit, increment uint64) coalesce.Hit { return coalesce.Hit{Limit: limit, Increment: increment} }
	must := func(increment uint64) coalesce.Hit {
		return coalesce.Hit{Limit: maxCount[uint16](), Increment: increment, Must: true}
	}
	for _, c := range []struct {
		name  string
		known bool
		count uint64
		now   float64
		fresh bool
		batch coalesce.Batch
		hit   coalesce.Hit
		want  coalesce.Verdict
		err   error
	}{
		{name: "no window is known", now: 101, hit: hit(10, 1), want: wait},
		{name: "there is no window", now: 101, fresh: true, hit: hit(10, 1), want: join},
		{name: "there is no window, and the batch is full", now: 101, fresh: true,
			batch: coalesce.Batch{Hits: 1, Sum: 1023, Limit: 10}, hit: hit(10, 1), want: wait},

		{name: "within the limit", known: true, count: 9, now: 101, hit: hit(10, 1), want: join},
		{name: "at the limit", known: true, count: 10, now: 101, hit: hit(10, 1), want: join},
		{name: "a full batch", known: true, count: 9, now: 101,
			batch: coalesce.Batch{Hits: 1, Sum: 1023, Limit: 10}, hit: hit(10, 1), want: wait},
		{name: "may be over", known: true, count: 9, now: 160.5, hit: hit(10, 1), want: join},
		{name: "over", known: true, count: 9, now: 161, hit: hit(10, 1), want: wait},
		{name: "over although just read", known: true, count: 9, now: 161, fresh: true, hit: hit(10, 1), want: wait},

		{name: "full", known: true, count: 11, now: 101, hit: hit(10, 1), want: decided},
		{name: "full for this hit, with others in the batch", known: true, count: 11, now: 101,
			batch: coalesce.Batch{Hits: 5, Sum: 5, Limit: 50}, hit: hit(10, 1), want: decided},
		{name: "full, read a moment ago", known: true, count: 11, now: 103.999, hit: hit(10, 1), want: decided},
		{name: "full, read too long ago", known: true, count: 11, now: 105, hit: hit(10, 1), want: wait},
		{name: "full, read in the future", known: true, count: 11, now: 99, hit: hit(10, 1), want: wait},
		{name: "full, read again", known: true, count: 11, now: 105, fresh: true, hit: hit(10, 1), want: decided},

		{name: "a large increment", known: true, count: 9, now: 101, hit: hit(10, 1024), want: wait},
		{name: "a large increment, the count was read again", known: true, count: 9, now: 101, fresh: true, hit: hit(10, 1024), want: join},
		{name: "a large Inc", known: true, count: 9, now: 101, hit: must(2), want: wait},
		{name: "a large Inc, the count was read again", known: true, count: 9, now: 101, fresh: true, hit: must(2), want: join},

		{name: "an Inc of a full window", known: true, count: 11, now: 101, hit: must(1), want: join},
		{name: "an Inc that may overflow", known: true, count: 65_471, now: 101, hit: must(1), want: wait},
		{name: "an Inc that overflows", known: true, count: 65_471, now: 101, fresh: true, hit: must(1), want: decided, err: window.ErrRange},
		{name: "an Inc of nothing at the highest count", known: true, count: 65_471, now: 101, hit: must(0), want: join},
	} {
		tm, ok := timingOf(time.Minute, 1<<16-1)
		require.True(t, ok)
		e := &entry[uint16]{timing: tm, denialMemory: 4 * time.Second, known: c.known}
		e.state = state{bucket: 7, count: c.count, seen: at(100), earliestEnd: at(160), latestEnd: at(161)}
		c.batch.Now, c.batch.Fresh, c.batch.Read = at(c.now), c.fresh, c.fresh
		verdict, r, err := e.Admit(c.batch, c.hit)
		require.Equal(t, c.want, verdict, c.name)
		if c.err != nil {
			require.ErrorIs(t, err, c.err, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		if c.want == decided {
			require.Equal(t, c.count, r.Count, c.name)
			require.EqualValues(t, 7, r.ID, c.name)
			require.Equal(t, at(161), r.ExpiresAt, c.name)
		} else {
			require.Zero(t, r, c.name)
		}
	}
}

// Denial memory ends before the window may, so that nobody is denied in the next one.
func TestDenialsEndBeforeTheWindowMay(t *testing.T) {
	end := time.Unix(160, 0)
	tm, _ := timingOf(time.Minute, 1<<16-1)
	e := &entry[uint16]{timing: tm, denialMemory: time.Hour, known: true}
	e.state = state{count: 11, seen: end.Add(-time.Minute), earliestEnd: end, latestEnd: end.Add(time.Second)}
	require.True(t, e.denies(coalesce.Hit{Limit: 10}, end.Add(-1)))
	require.False(t, e.denies(coalesce.Hit{Limit: 10}, end))
	e.denialMemory = -1
	require.False(t, e.denies(coalesce.Hit{Limit: 10}, end.Add(-time.Minute)))
}
