package fixedwindow

import (
	"context"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
)

const (
	// tieLookups is how often the records of a tie are read again before it is resolved.
	tieLookups = 12
	// minTiePause and maxTiePause bound the pauses between them.
	minTiePause = time.Millisecond
	maxTiePause = 50 * time.Millisecond
)

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

// get reads the active window. It does not change what is known.
func (e *entry[T]) get(ctx context.Context) (coalesce.Result, error) {
	now := e.backend.now()
	if known, name, ok := e.current(now); ok {
		o, _, err := e.increase(ctx, known.bucket, name, 0, now)
		if err != nil {
			return coalesce.Result{}, err
		}
		if o.matches(known, 0, e.timing) {
			s := o.state(e.timing)
			s.narrow(known)
			return s.result(e.timing, o.count, e.backend.now()), nil
		}
	}
	o, ok, err := e.lookup(ctx)
	if !ok || err != nil {
		return coalesce.Result{}, err
	}
	return o.state(e.timing).result(e.timing, o.count, e.backend.now()), nil
}

// agree returns the oldest of the live records, which is the window for all clients. It returns
// false if there is none. As long as there is a tie, it reads the records again.
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

// oldest returns the record with the shortest TTL. There is a tie if another record may be older
// all the same, because TTLs are floored and records are read one after the other. Then the
// client that opened the younger one is about to remove it.
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

// busiest returns the record with the highest count among those whose TTL is left, or up to a
// unit more. It resolves a tie that lasts: the client that had to remove the younger record has
// died, and only its first batch was counted there.
func busiest(live []observation, left uint64) observation {
	o := observation{}
	for _, other := range live {
		if other.left <= left+1 && (!o.found || other.count > o.count) {
			o = other
		}
	}
	return o
}
