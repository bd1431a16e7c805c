package throttr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// timelyTries is how often a request to open a window is made that waits to be sent for
	// longer than its bucket lasts.
	timelyTries = 3
	// tieLooks is how often a tie is looked at before it is taken to be for ever.
	tieLooks = 12
	// tiePause is how long the first of them waits; each waits twice as long as the one
	// before, up to maxTiePause.
	tiePause    = time.Millisecond
	maxTiePause = 50 * time.Millisecond
)

// errNoRecord says that the names of all buckets in reach are used up, which takes clocks
// that differ by more than a scale, or a clock that was turned back.
var errNoRecord = errors.New("throttr: every bucket in reach has had its window: clocks differ by more than the scale")

// survey queries the buckets around one.
func (l *lane[T]) survey(ctx context.Context, around int64) ([]sight, error) {
	cl := l.request(whole)
	reach := l.timing.reach()
	for b := around - reach; b <= around+reach; b++ {
		l.query(cl, b)
	}
	answers, lo, hi, err := l.ask(ctx, cl)
	if err != nil {
		return nil, err
	}
	seen := make([]sight, len(answers))
	for i, a := range answers {
		seen[i] = sighting(around-reach+int64(i), a, lo, hi)
	}
	l.backend.client.calls.Put(cl)
	return seen, nil
}

// look queries the buckets around one and returns the live records.
func (l *lane[T]) look(ctx context.Context, around int64) ([]sight, error) {
	seen, err := l.survey(ctx, around)
	return slices.DeleteFunc(seen, func(s sight) bool { return !s.live(l.timing) }), err
}

// oldest returns the record that has least left. It is a tie if another may be older all
// the same: both amounts were floored, and one was read after the other. One of the two is
// about to be removed then, by the client that came second.
func (l *lane[T]) oldest(live []sight) (s sight, tie bool) {
	s = live[0]
	for _, o := range live[1:] {
		if o.left < s.left {
			s = o
		}
	}
	blur := max(l.timing.duration(1), s.hi.Sub(s.lo))
	for _, o := range live {
		if o.bucket != s.bucket && l.timing.duration(o.left-s.left) <= blur {
			tie = true
		}
	}
	return s, tie
}

// busiest returns the record that has counted most of those that have least left, to a
// unit. It breaks a tie that lasts: the client that should have removed the younger record
// has died, and all it has counted there is its first flight.
func busiest(live []sight, left uint64) sight {
	s := sight{}
	for _, o := range live {
		if o.left <= left+1 && (!s.found || o.count > s.count) {
			s = o
		}
	}
	return s
}

// agree returns the record among those that are live that all clients take for the
// window's, and false if there is none. It looks again while there is a tie.
func (l *lane[T]) agree(ctx context.Context, around int64, live []sight) (s sight, ok bool, err error) {
	pause := tiePause
	for try := 0; ; try++ {
		if len(live) == 0 {
			return sight{}, false, nil
		}
		s, tie := l.oldest(live)
		if !tie {
			return s, true, nil
		}
		if try == tieLooks {
			return busiest(live, s.left), true, nil
		}
		if err := sleep(ctx, pause); err != nil {
			return sight{}, false, l.backend.refused(l.key, false, err)
		}
		pause = min(2*pause, maxTiePause)
		if live, err = l.look(ctx, around); err != nil {
			return sight{}, false, err
		}
	}
}

// sleep waits for d, or for ctx to end.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// find looks for the key's window and joins it, or opens one with the visits that
// wait. Opening looks too, but to open without need would cost hits: if another client's
// window ends before the one just opened is undone, others join that.
func (l *lane[T]) find(f *flight) {
	ctx := l.backend.ctx
	now := l.timing.bucket(l.backend.now())
	live, err := l.look(ctx, now)
	var s sight
	var ok bool
	if err == nil {
		s, ok, err = l.agree(ctx, now, live)
	}
	switch {
	case err != nil:
		l.failAll(l.fate(err, false))
	case ok:
		l.join(s)
	case l.board(f):
		l.open(f)
	}
}

// join makes a record that was just read the known window.
func (l *lane[T]) join(s sight) {
	l.observe(s)
	l.fresh = true
}

// board takes those visits that wait into a flight for a window that starts at 0.
func (l *lane[T]) board(f *flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.queue.len() > 0 {
		v := l.queue.at(0)
		if v.gone {
			l.queue.pop()
			continue
		}
		if v.task >= setTask || !l.takes(f, v) {
			break
		}
		f.add(l.queue.pop())
	}
	return len(f.visits) > 0
}

// open opens a window that counts a flight.
func (l *lane[T]) open(f *flight) {
	if err := l.timely(func(present int64) error { return l.openNear(present, f) }); err != nil {
		l.failFlight(f, l.fate(err, !SafeToRetry(err)))
	}
}

// timely has a window opened near the present bucket. It does so again where that bucket was
// over before the request could be sent: others would look for the window elsewhere. If that
// never does, the error names the scale, which may be one without its unit.
func (l *lane[T]) timely(open func(present int64) error) error {
	for range timelyTries {
		if err := open(l.timing.bucket(l.backend.now())); !errors.Is(err, errStale) {
			return err
		}
	}
	return l.backend.refused(l.key, false, fmt.Errorf("%w: a window of %v was over by then", errStale, l.timing.scale))
}

// openNear opens a window in the present bucket or, where its name is used up, in one of the
// next.
func (l *lane[T]) openNear(present int64, f *flight) error {
	for b := present; b <= present+l.timing.reach(); b++ {
		used, err := l.openIn(b, present, f)
		if !used || err != nil {
			return err
		}
	}
	return l.backend.refused(l.key, false, errNoRecord)
}

// opening returns an empty call for a request to open a window near a bucket, which makes no
// sense once that bucket is over.
func (l *lane[T]) opening(around int64) *call[T] {
	cl := l.request(alone)
	cl.stale = func() bool { return l.timing.bucket(l.backend.now()) != around }
	return cl
}

// openIn opens a window in bucket b. In one batch that nothing interrupts on the server,
// it reads the other buckets, inserts the record, and counts the flight in it. So of two
// clients that open at the same moment the second sees the first one's record, and
// yields. It returns true if the name of b is used up.
//
// A flight of more than a client's share is what the record begins with: it must not be
// added to a count that it has not seen (H3).
func (l *lane[T]) openIn(b, around int64, f *flight) (used bool, err error) {
	bk := l.backend
	if err := l.purger.reserve(); err != nil {
		return false, bk.refused(l.key, false, err)
	}
	reach := l.timing.reach()
	cl := l.opening(around)
	for o := around - reach; o <= around+reach; o++ {
		if o != b {
			l.query(cl, o)
		}
	}
	counts := f.sum <= share(uint64(^T(0)), f.most)
	if counts {
		l.insert(cl, b, 0)
		l.increase(cl, b, f.sum)
	} else {
		l.insert(cl, b, f.sum)
	}
	l.query(cl, b)
	answers, lo, hi, err := l.ask(bk.ctx, cl)
	if err != nil {
		l.purger.unanswered(l, b, err)
		return false, err
	}
	own := sighting(b, answers[len(answers)-1], lo, hi)
	inserted := answers[2*reach].ok
	var others []sight
	for o, i := around-reach, 0; o <= around+reach; o++ {
		if o != b {
			if s := sighting(o, answers[i], lo, hi); s.live(l.timing) {
				others = append(others, s)
			}
			i++
		}
	}
	bk.client.calls.Put(cl)
	if inserted {
		l.purger.add(l, b, l.timing.over(b, hi))
		return false, l.opened(own, others, around, f)
	}
	l.purger.release()
	if !own.live(l.timing) && len(others) == 0 {
		return true, nil
	}
	return false, l.yield(own, counts && own.live(l.timing), others, around, f)
}

// opened follows an INSERT that has succeeded. Every other live record is older then, and
// the oldest is the window; the own one is removed.
func (l *lane[T]) opened(own sight, others []sight, around int64, f *flight) error {
	if len(others) == 0 {
		l.mu.Lock()
		l.window = l.timing.opened(own.bucket, own.count, own.lo, own.hi)
		l.known = true
		l.mu.Unlock()
		l.settle(f, own.count)
		return nil
	}
	cl := l.request(loose)
	l.purge(cl, own.bucket)
	_, _, _, err := l.ask(l.backend.ctx, cl)
	if err != nil {
		return l.fate(err, true)
	}
	l.backend.client.calls.Put(cl)
	return l.yield(sight{}, false, others, around, f)
}

// yield follows an INSERT in vain: the window is that of another client. If that is own,
// the record that has the name, then the flight may have been counted there.
func (l *lane[T]) yield(own sight, counted bool, others []sight, around int64, f *flight) error {
	live := others
	if own.live(l.timing) {
		live = append(live, own)
	}
	return l.elect(live, own, counted, around, f)
}

// elect joins the window among records that are live. A flight that was counted in own has
// its answer if that is it, and is given back otherwise.
func (l *lane[T]) elect(live []sight, own sight, counted bool, around int64, f *flight) error {
	s, ok, err := l.agree(l.backend.ctx, around, live)
	if err != nil {
		return l.fate(err, counted)
	}
	if ok {
		l.join(s)
	}
	if ok && counted && s.bucket == own.bucket {
		l.settle(f, own.count)
	} else {
		l.giveBack(f)
	}
	return nil
}
