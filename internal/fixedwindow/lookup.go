package fixedwindow

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/conn"
)

const (
	// tieLookups is how often a tie is looked up again before it is resolved.
	tieLookups = 12
	// minTiePause and maxTiePause bound the pauses between these lookups.
	minTiePause = time.Millisecond
	maxTiePause = 50 * time.Millisecond
)

// errNoRecord says that the names of all buckets in reach are used up. This takes clocks that
// differ by more than a scale, or a clock that was set back.
var errNoRecord = errors.New("throttr: every bucket in reach has had its window: clocks differ by more than the scale")

// observeAll queries the records of all buckets in reach of one.
func (e *entry[T]) observeAll(ctx context.Context, around int64) ([]observation, error) {
	cl := e.call(conn.SingleRead)
	reach := e.timing.reach()
	for b := around - reach; b <= around+reach; b++ {
		e.addQuery(cl, b)
	}
	from, to, _, err := e.doTimed(ctx, cl)
	if err != nil {
		return nil, err
	}
	all := make([]observation, len(cl.Replies))
	for i, r := range cl.Replies {
		all[i] = observe(around-reach+int64(i), r, from, to)
	}
	e.backend.calls.Put(cl)
	return all, nil
}

// observeLive is observeAll without the records that are not live.
func (e *entry[T]) observeLive(ctx context.Context, around int64) ([]observation, error) {
	all, err := e.observeAll(ctx, around)
	return slices.DeleteFunc(all, func(o observation) bool { return !o.live(e.timing) }), err
}

// lookup finds the active window. It returns false if there is none.
func (e *entry[T]) lookup(ctx context.Context) (o observation, ok bool, err error) {
	around := e.timing.bucket(e.backend.now())
	live, err := e.observeLive(ctx, around)
	if err != nil {
		return observation{}, false, err
	}
	return e.agree(ctx, around, live)
}

// agree returns the one of the live records that all clients hold to be the window, which is
// the oldest. It returns false if there is none. As long as there is a tie, it looks them up
// again.
func (e *entry[T]) agree(ctx context.Context, around int64, live []observation) (o observation, ok bool, err error) {
	var pauses *backoff.Backoff
	for try := 0; ; try++ {
		if len(live) == 0 {
			return observation{}, false, nil
		}
		o, tie := oldest(live, e.timing)
		if !tie {
			return o, true, nil
		}
		if try == tieLookups {
			return busiest(live, o.left), true, nil
		}
		if pauses == nil {
			pauses = backoff.New(minTiePause, maxTiePause)
		}
		if err := pauses.Wait(ctx); err != nil {
			return observation{}, false, err
		}
		if live, err = e.observeLive(ctx, around); err != nil {
			return observation{}, false, err
		}
	}
}

// oldest returns the record that has the shortest TTL left. There is a tie if another one may
// be older all the same, because both TTLs were floored, and one was read after the other.
// The client that came second is then about to remove one of the two.
func oldest(live []observation, t timing) (o observation, tie bool) {
	o = live[0]
	for _, other := range live[1:] {
		if other.left < o.left {
			o = other
		}
	}
	blur := max(t.duration(1), o.to.Sub(o.from))
	for _, other := range live {
		if other.bucket != o.bucket && t.duration(other.left-o.left) <= blur {
			tie = true
		}
	}
	return o, tie
}

// busiest returns the record with the highest count of those that have left, give or take a
// unit. It resolves a tie that lasts: the client that had to remove the younger record has
// died, and all that was counted there is its first batch.
func busiest(live []observation, left uint64) observation {
	o := observation{}
	for _, other := range live {
		if other.left <= left+1 && (!o.found || other.count > o.count) {
			o = other
		}
	}
	return o
}
