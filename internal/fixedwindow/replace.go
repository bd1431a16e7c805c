package fixedwindow

import (
	"context"

	"github.com/throttr-go/throttr/internal/coalesce"
)

// set opens a window with a count in place of all others. If err is not nil, sent reports
// whether a part of that may have been done.
func (e *entry[T]) set(ctx context.Context, count uint64) (r coalesce.Result, sent bool, err error) {
	var s state
	err = e.timely(func(present int64) (err error) {
		var tried bool
		s, tried, err = e.setNear(ctx, present, count)
		sent = sent || tried
		return err
	})
	if err != nil {
		e.forget()
		return coalesce.Result{}, sent, err
	}
	e.learnOpened(s)
	return s.result(e.timing, count, e.backend.now()), sent, nil
}

// setNear opens the window in the present bucket, or in one of the next if its name is used
// up.
func (e *entry[T]) setNear(ctx context.Context, present int64, count uint64) (s state, sent bool, err error) {
	for bucket := present; bucket <= present+e.timing.reach(); bucket++ {
		all, err := e.observeAll(ctx, present)
		if err != nil {
			return state{}, sent, err
		}
		s, done, tried, err := e.replace(ctx, all, present, bucket, count)
		sent = sent || tried
		if done || err != nil {
			return s, sent, err
		}
	}
	return state{}, sent, errNoRecord
}

// replace inserts a record in a bucket and removes all records that are not known to be those of
// windows that are over, including those that were inserted since they were observed. It is one
// call that nothing interrupts. So no record has to be removed later, when another Set may have
// used its name.
//
// Records of windows that are over are left to the clients that inserted them, and their names
// are used up. If the bucket has such a record, or if INSERT fails, done is false.
func (e *entry[T]) replace(ctx context.Context, all []observation, around, bucket int64, count uint64) (s state, done, sent bool, err error) {
	if err := e.reaper.reserve(); err != nil {
		return state{}, false, false, err
	}
	cl := e.openingCall(around)
	for _, o := range all {
		switch {
		case !o.found || o.live(e.timing):
			e.addPurge(cl, o.bucket)
		case o.bucket == bucket:
			e.backend.calls.Put(cl)
			e.reaper.release()
			return state{}, false, false, nil
		}
	}
	e.addInsert(cl, bucket, count)
	from, to, sent, err := e.doTimed(ctx, cl)
	if err != nil {
		e.reaper.insertFailed(e, bucket, sent)
		return state{}, false, sent, err
	}
	inserted := cl.Replies[len(cl.Replies)-1].OK
	e.backend.calls.Put(cl)
	if !inserted {
		e.reaper.release()
		return state{}, false, true, nil
	}
	e.reaper.add(e, bucket, e.timing.over(bucket, to))
	return e.timing.opened(bucket, count, from, to), true, true, nil
}

// reset removes all live records and returns the window that it has ended, if there was one. If
// err is not nil, sent reports whether a record may have been removed.
func (e *entry[T]) reset(ctx context.Context) (r coalesce.Result, sent bool, err error) {
	live, err := e.observeLive(ctx, e.timing.bucket(e.backend.now()))
	e.forget()
	if err != nil {
		return coalesce.Result{}, false, err
	}
	if len(live) > 0 {
		o, _ := oldest(live, e.timing)
		r = o.state(e.timing).result(e.timing, o.count, e.backend.now())
	}
	sent, err = e.purge(ctx, live...)
	return r, sent, err
}
