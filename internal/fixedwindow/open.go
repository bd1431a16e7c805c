package fixedwindow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
)

// timelyTries is how often a window is opened if the bucket is over before the call is sent.
const timelyTries = 3

// errNoRecord says that the names of all buckets in reach are used up. That happens only if
// clocks differ by more than a scale, or if a clock was set back.
var errNoRecord = errors.New("throttr: every bucket in reach has had its window: clocks differ by more than the scale")

// timely calls open with the present bucket. It does so again if that is over before the call is
// sent, because other clients look for the window in later buckets by then. The error of the last
// try names the scale, which may be too short for the network.
func (e *entry[T]) timely(open func(present int64) error) error {
	for range timelyTries {
		if err := open(e.timing.bucket(e.backend.now())); !errors.Is(err, conn.ErrStale) {
			return err
		}
	}
	return staleError(e.timing.scale)
}

// staleError is the error of a hit that was not counted because windows of the scale were over
// by the time that it could be.
func staleError(scale time.Duration) error {
	return fmt.Errorf("%w: a window of %v was over by then", conn.ErrStale, scale)
}

// openingCall returns an empty call that opens a window near a bucket. It is not sent once that
// bucket is over.
func (e *entry[T]) openingCall(around int64) *conn.Call[T] {
	cl := e.call(conn.Exclusive)
	cl.Stale = func() bool { return e.timing.bucket(e.backend.now()) != around }
	return cl
}

// open opens a window that counts a batch, after a lookup has found none. The call that opens it
// also reads the other records. It can't replace the lookup: if it opens a window beside that of
// another client, and that one ends before the new record is removed, other clients join the new
// record, and their hits are lost.
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

// openIn opens a window in a bucket. It returns true, and has no effect, if the name of the
// bucket's record is used up.
//
// One call that nothing interrupts queries the other buckets, inserts the record, and adds the
// batch to it. If two clients open a window at the same time, the second one therefore sees the
// first one's record and joins that.
//
// A batch that is larger than a share is the initial count of the record, because it must not be
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
	// Another client has opened the window. If own is its record, the batch was added to that.
	return e.joinOldest(ctx, live, own, adds && own.live(e.timing), around), false
}

// opened is called after an INSERT that has succeeded. All other live records are older than own.
// If there are any, the oldest is the window, and own is removed.
func (e *entry[T]) opened(ctx context.Context, own observation, others []observation, around int64) coalesce.Outcome {
	if len(others) == 0 {
		s := e.timing.opened(own.bucket, own.count, own.from, own.to)
		e.learnOpened(s)
		return e.counted(s, own.count, e.backend.now())
	}
	if _, err := e.purge(ctx, own); err != nil {
		return coalesce.Outcome{Err: err, Sent: true}
	}
	return e.joinOldest(ctx, others, observation{}, false, around)
}
