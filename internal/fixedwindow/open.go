package fixedwindow

import (
	"context"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
)

// timelyTries is how often a request that opens a window is made if it is not sent before its
// bucket is over.
const timelyTries = 3

// timely calls open with the present bucket. It does so again if that was over before the
// request was sent: other clients would look for the window elsewhere. If this never works
// out, the error names the scale, which may lack its unit.
func (e *entry[T]) timely(open func(present int64) error) error {
	for range timelyTries {
		if err := open(e.timing.bucket(e.backend.now())); !errors.Is(err, conn.ErrStale) {
			return err
		}
	}
	return fmt.Errorf("%w: a window of %v was over by then", conn.ErrStale, e.timing.scale)
}

// openingCall returns an empty call for a request that opens a window near a bucket. Once
// that bucket is over, it is too late to send it.
func (e *entry[T]) openingCall(around int64) *conn.Call[T] {
	cl := e.call(conn.Exclusive)
	cl.Stale = func() bool { return e.timing.bucket(e.backend.now()) != around }
	return cl
}

// open opens a window that counts a batch, after a lookup that has found none. The opening
// batch of requests looks, too, but to open without need would lose hits: if the window of
// another client ends before the one just opened is removed, others join the latter.
func (e *entry[T]) open(ctx context.Context, b coalesce.Batch) (out coalesce.Outcome) {
	err := e.timely(func(present int64) error {
		out = e.openNear(ctx, present, b)
		return out.Err
	})
	out.Err = err
	return out
}

// openNear opens a window in the present bucket, or in one of the next if its name is used
// up.
func (e *entry[T]) openNear(ctx context.Context, present int64, b coalesce.Batch) coalesce.Outcome {
	for bucket := present; bucket <= present+e.timing.reach(); bucket++ {
		if out, used := e.openIn(ctx, bucket, present, b); !used {
			return out
		}
	}
	return coalesce.Outcome{Err: errNoRecord}
}

// openIn opens a window in a bucket. It returns true, and has done nothing, if the name of
// the bucket's record is used up.
//
// One call that nothing interrupts on the server queries the other buckets, inserts the
// record, and adds the batch to it. Of two clients that open at the same time, the second so
// sees the record of the first, and joins that.
//
// A batch that is larger than a share is what the record begins with, because it must not be
// added to a count that was not read (H3).
func (e *entry[T]) openIn(ctx context.Context, bucket, around int64, b coalesce.Batch) (out coalesce.Outcome, used bool) {
	if err := e.reaper.reserve(); err != nil {
		return coalesce.Outcome{Err: err}, false
	}
	reach := e.timing.reach()
	cl := e.openingCall(around)
	for o := around - reach; o <= around+reach; o++ {
		if o != bucket {
			e.addQuery(cl, o)
		}
	}
	adds := b.Sum <= share(maxValue[T](), b.Limit)
	if adds {
		e.addInsert(cl, bucket, 0)
		e.addIncrease(cl, bucket, b.Sum)
	} else {
		e.addInsert(cl, bucket, b.Sum)
	}
	e.addQuery(cl, bucket)
	from, to, sent, err := e.doTimed(ctx, cl)
	if err != nil {
		e.reaper.insertFailed(e, bucket, sent)
		return coalesce.Outcome{Err: err, Sent: sent}, false
	}
	own := observe(bucket, cl.Replies[len(cl.Replies)-1], from, to)
	inserted := cl.Replies[2*reach].OK
	var others []observation
	for o, i := around-reach, 0; o <= around+reach; o++ {
		if o != bucket {
			if other := observe(o, cl.Replies[i], from, to); other.live(e.timing) {
				others = append(others, other)
			}
			i++
		}
	}
	e.backend.calls.Put(cl)
	if inserted {
		e.reaper.add(e, bucket, e.timing.over(bucket, to))
		return e.opened(ctx, own, others, around), false
	}
	e.reaper.release()
	live := others
	if own.live(e.timing) {
		live = append(live, own)
	}
	if len(live) == 0 {
		return coalesce.Outcome{}, true
	}
	// The window is that of another client. If its record is own, the batch was counted there.
	return e.elect(ctx, live, own, adds && own.live(e.timing), around), false
}

// opened follows an INSERT that has succeeded. All other live records are older. If there are
// any, the oldest is the window, and the own one is removed.
func (e *entry[T]) opened(ctx context.Context, own observation, others []observation, around int64) coalesce.Outcome {
	if len(others) == 0 {
		s := e.timing.opened(own.bucket, own.count, own.from, own.to)
		e.learnOpened(s)
		return e.counted(s, own.count, e.backend.now())
	}
	if _, err := e.purge(ctx, own); err != nil {
		return coalesce.Outcome{Err: err, Sent: true}
	}
	return e.elect(ctx, others, observation{}, false, around)
}
