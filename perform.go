package throttr

import "context"

// perform does a Set or Reset.
func (l *lane[T]) perform(v *visit) {
	var ended Window
	var sent bool
	var err error
	if v.task == setTask {
		sent, err = l.set(v.increment)
	} else {
		ended, sent, err = l.reset()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.known = false
		l.fail(v, l.fate(err, sent))
	case v.task == setTask:
		l.answer(v, v.increment, l.backend.now())
	default:
		v.window = ended
		v.finish()
	}
}

// reset removes every live record of the key and returns the window that it has ended.
// With an error, it returns whether it may have removed one.
func (l *lane[T]) reset() (ended Window, sent bool, err error) {
	live, err := l.look(l.backend.ctx, l.timing.bucket(l.backend.now()))
	if err != nil {
		return Window{}, false, err
	}
	l.forget()
	if len(live) > 0 {
		s, _ := l.oldest(live)
		ended = l.report(s, nil)
	}
	err = l.purgeAll(live)
	return ended, !SafeToRetry(err), err
}

// purgeAll removes records.
func (l *lane[T]) purgeAll(live []sight) error {
	if len(live) == 0 {
		return nil
	}
	cl := l.request(loose)
	for _, s := range live {
		l.purge(cl, s.bucket)
	}
	_, _, _, err := l.ask(l.backend.ctx, cl)
	if err == nil {
		l.backend.client.calls.Put(cl)
	}
	return err
}

// set opens a window with a count in place of every other. With an error, it returns whether
// it may have done some of that.
func (l *lane[T]) set(count uint64) (sent bool, err error) {
	err = l.timely(func(present int64) error {
		tried, err := l.setNear(present, count)
		sent = sent || tried
		return err
	})
	return sent, err
}

// setNear does so in the present bucket, or in one of the next where its name is used up.
func (l *lane[T]) setNear(present int64, count uint64) (sent bool, err error) {
	for b := present; b <= present+l.timing.reach(); b++ {
		seen, err := l.survey(l.backend.ctx, present)
		if err != nil {
			return sent, err
		}
		done, err := l.replace(seen, present, b, count)
		sent = sent || !SafeToRetry(err)
		if done || err != nil {
			return sent, err
		}
	}
	return sent, errNoRecord
}

// replace inserts a record in bucket b, in place of all that are not known to be over: also
// of those that others have opened since they were seen. It is one batch that nothing
// interrupts, so that nothing needs to be removed later, when another Set may have used
// its name. What is over is left to its owner, and its name is used up: then replace
// returns false.
func (l *lane[T]) replace(seen []sight, around, b int64, count uint64) (done bool, err error) {
	bk := l.backend
	if err := l.purger.reserve(); err != nil {
		return false, bk.refused(l.key, false, err)
	}
	cl := l.opening(around)
	used := false
	for _, s := range seen {
		if !s.found || s.live(l.timing) {
			l.purge(cl, s.bucket)
		} else if s.bucket == b {
			used = true
		}
	}
	if used {
		bk.client.calls.Put(cl)
		l.purger.release()
		return false, nil
	}
	l.insert(cl, b, count)
	answers, lo, hi, err := l.ask(bk.ctx, cl)
	if err != nil {
		l.purger.unanswered(l, b, err)
		return false, err
	}
	inserted := answers[len(answers)-1].ok
	bk.client.calls.Put(cl)
	if !inserted {
		l.purger.release()
		return false, nil
	}
	l.purger.add(l, b, l.timing.over(b, hi))
	l.mu.Lock()
	l.window = l.timing.opened(b, count, lo, hi)
	l.known = true
	l.mu.Unlock()
	return true, nil
}

// peek reads the active window, or looks for it, for a caller who only wants to know.
func (l *lane[T]) peek(ctx context.Context) (Window, error) {
	l.mu.Lock()
	w, name := l.window, l.nameOf(l.window.bucket)
	known := l.known && l.backend.now().Before(w.endHi)
	l.mu.Unlock()
	if known {
		s, err := l.read(ctx, w.bucket, name, 0, l.backend.now())
		if err != nil {
			return Window{}, err
		}
		if s.live(l.timing) && s.of(w, l.timing) {
			return l.report(s, &w), nil
		}
	}
	now := l.timing.bucket(l.backend.now())
	live, err := l.look(ctx, now)
	if err != nil {
		return Window{}, err
	}
	s, ok, err := l.agree(ctx, now, live)
	if !ok || err != nil {
		return Window{}, err
	}
	return l.report(s, nil), nil
}

// report makes a Window of a sight and of what was known of it before.
func (l *lane[T]) report(s sight, old *window) Window {
	w := window{bucket: s.bucket}
	w.endLo, w.endHi = s.ends(l.timing)
	if old != nil {
		w.narrow(*old)
	}
	return w.result(l.timing, s.count, l.backend.now())
}
