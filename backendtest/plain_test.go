package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// plain is the simplest backend. It is correct, unless it has a fault.
type plain struct {
	algorithm window.Algorithm
	skips     bool   // does not count hits on a window over its limit
	maxCount  uint64 // 0: no bound
	fault     fault

	hits   atomic.Int64
	closed atomic.Bool

	mu      clockMutex // guards what follows
	windows map[plainID]*window.Window
	last    int64 // ID of the window that was opened last
}

var _ window.Backend = (*plain)(nil)

// clockMutex is a mutex that reads a clock when it is locked, as a call has one time: a window must not
// end in the middle of it.
type clockMutex struct {
	sync.Mutex
	clock func() time.Time
	now   time.Time
}

func (m *clockMutex) Lock() {
	m.Mutex.Lock()
	m.now = m.clock()
}

type plainID struct {
	key   string
	scale time.Duration
}

func newPlain(now func() time.Time, a window.Algorithm, f fault) *plain {
	return &plain{mu: clockMutex{clock: now}, algorithm: a, fault: f, windows: map[plainID]*window.Window{}}
}

// fault is a mistake in a backend.
type fault string

const (
	none                 fault = ""
	losesHits            fault = "one hit in 1000 is not counted"
	repeatsCounts        fault = "hits are counted between reading and adding"
	opensTwice           fault = "windows are opened between reading and opening"
	endsLate             fault = "a window is active at its end"
	endsEarly            fault = "a window ends a millisecond early"
	endsEarlySilently    fault = "a window ends a millisecond before its ExpiresAt"
	returnsLateEnd       fault = "ExpiresAt is a millisecond late"
	returnsNoEnd         fault = "ExpiresAt is zero"
	returnsWrongLeft     fault = "Left is always a scale"
	returnsWrongStart    fault = "StartedAt is always now"
	returnsWrongUpdate   fault = "UpdatedAt is always StartedAt"
	slides               fault = "a hit moves the end of the window"
	ignoresAlgorithm     fault = "windows are those of the other algorithm"
	sharesScales         fault = "the scales of a key share a window"
	joinsNames           fault = "key and scale are concatenated"
	joinsNamesScaleFirst fault = "scale and key are concatenated"
	cutsKeys             fault = "keys are cut at 255 bytes"
	foldsKeys            fault = "keys are folded to lower case"
	trimsKeys            fault = "keys are trimmed"
	repairsKeys          fault = "keys are made valid UTF-8"
	wraps                fault = "counts wrap around"
	comparesFirst        fault = "a hit that would be denied is not counted"
	skipsAtLimit         fault = "a hit on a full window is not counted"
	losesCountWhenDenied fault = "a hit on a window over its limit clears the count"
	zeroOpensNothing     fault = "an increment of 0 opens no window"
	incStopsAtTen        fault = "Inc does not count beyond 10"
	getOpens             fault = "Get opens a window"
	getReturnsOver       fault = "Get returns a window that is over"
	setKeepsEnd          fault = "Set keeps the end of the window"
	setAdds              fault = "Set adds to the count"
	setNeedsWindow       fault = "Set opens no window"
	setToZeroDeletes     fault = "Set to 0 ends the window"
	resetDoesNothing     fault = "Reset does nothing"
	resetEndsAllScales   fault = "Reset ends the windows of all scales"
	resetClearsOnly      fault = "Reset clears the count and keeps the end"
	deleteReturnsZero    fault = "Delete always returns 0"
	deleteCountsOver     fault = "Delete counts windows that are over"
	deleteIgnoresScales  fault = "Delete ends the windows of all scales, whatever the scales"
	deleteNeedsScales    fault = "Delete without scales does nothing"
	deleteByPrefix       fault = "Delete ends the windows of keys with the same prefix"
	ignoresContext       fault = "the context is ignored"
	checksContextTooLate fault = "the context is checked after the call"
	hidesContextError    fault = "the error does not match that of the context"
	forgetsKeys          fault = "with more than 20 windows, one is lost"
	acceptsShortScales   fault = "positive scales under 1 ms are accepted"
	hidesErrScale        fault = "the error of a scale does not match window.ErrScale"
	deletesShortScales   fault = "Delete accepts scales under 1 ms"
	acceptsTooMuch       fault = "numbers over MaxCount are accepted"
	acceptsHighLimits    fault = "limits over MaxCount are accepted"
	hidesErrRange        fault = "the error of a number does not match window.ErrRange"
	worksAfterClose      fault = "calls after Close succeed"
	getsAfterClose       fault = "Get after Close succeeds"
	hidesErrClosed       fault = "the error after Close does not match window.ErrClosed"
)

// is reports whether the backend has the fault.
func (p *plain) is(f fault) bool { return p.fault == f }

func (p *plain) id(key string, scale time.Duration) plainID {
	switch p.fault {
	case sharesScales:
		return plainID{key: key}
	case joinsNames:
		return plainID{key: fmt.Sprint(key, scale.Milliseconds())}
	case joinsNamesScaleFirst:
		return plainID{key: fmt.Sprint(scale.Milliseconds()) + key}
	case cutsKeys:
		key = key[:min(len(key), 255)]
	case foldsKeys:
		key = strings.ToLower(key)
	case trimsKeys:
		key = strings.TrimSpace(key)
	case repairsKeys:
		key = strings.ToValidUTF8(key, "?")
	}
	return plainID{key, scale}
}

// Algorithm implements window.Teller.
func (p *plain) Algorithm() window.Algorithm { return p.algorithm }

// Close makes later calls fail.
func (p *plain) Close() error {
	p.closed.Store(true)
	return nil
}

// check returns the error of a call with a scale and numbers.
func (p *plain) check(scale time.Duration, numbers ...uint64) error {
	switch {
	case p.is(hidesErrScale) && scale < window.MinScale:
		return fmt.Errorf("plain: %v", window.CheckScale(scale))
	case !p.is(acceptsShortScales) || scale <= 0:
		if err := window.CheckScale(scale); err != nil {
			return err
		}
	}
	if p.maxCount > 0 && slices.Max(append(numbers, 0)) > p.maxCount && !p.is(acceptsTooMuch) {
		if p.is(hidesErrRange) {
			return errors.New("plain: too large")
		}
		return window.ErrRange
	}
	return p.checkOpen()
}

// checkOpen returns the error of a call after Close.
func (p *plain) checkOpen() error {
	switch {
	case !p.closed.Load() || p.is(worksAfterClose):
		return nil
	case p.is(hidesErrClosed):
		return errors.New("plain: closed")
	}
	return window.ErrClosed
}

// ended returns the error of ctx if it has ended.
func (p *plain) ended(ctx context.Context) error {
	switch {
	case p.is(ignoresContext):
		return nil
	case p.is(hidesContextError) && ctx.Err() != nil:
		return fmt.Errorf("plain: %v", ctx.Err())
	}
	return ctx.Err()
}

// active returns the active window, or nil. p.mu is held.
func (p *plain) active(id plainID) *window.Window {
	w := p.windows[id]
	now := p.mu.now
	if p.is(endsEarlySilently) {
		now = now.Add(time.Millisecond)
	}
	if w == nil || now.After(w.ExpiresAt) || now.Equal(w.ExpiresAt) && !p.is(endsLate) {
		return nil
	}
	return w
}

// open opens a window. p.mu is held.
func (p *plain) open(id plainID, scale time.Duration, count uint64) *window.Window {
	now, a := p.mu.now, p.algorithm
	if p.is(ignoresAlgorithm) {
		a = 1 - a
	}
	w := &window.Window{Count: count, StartedAt: a.Start(now, scale), UpdatedAt: now}
	w.ExpiresAt = w.StartedAt.Add(scale)
	p.identify(w)
	if p.is(endsEarly) {
		w.ExpiresAt = w.ExpiresAt.Add(-time.Millisecond)
	}
	if p.is(forgetsKeys) && len(p.windows) > 20 {
		for id := range p.windows {
			delete(p.windows, id)
			break
		}
	}
	p.windows[id] = w
	return w
}

// state returns a copy of w for the caller.
func (p *plain) state(w *window.Window, scale time.Duration) window.Window {
	c := *w
	switch p.fault {
	case returnsLateEnd:
		c.ExpiresAt = c.ExpiresAt.Add(time.Millisecond)
	case returnsNoEnd:
		c.ExpiresAt = time.Time{}
	case returnsWrongStart:
		c.StartedAt = p.mu.now
	case returnsWrongUpdate:
		c.UpdatedAt = c.StartedAt
	}
	c.Left = c.ExpiresAt.Sub(p.mu.now)
	if p.is(returnsWrongLeft) {
		c.Left = scale
	}
	return c
}

// unlockBriefly unlocks the mutex and lets other goroutines run, although the backend should not.
func (p *plain) unlockBriefly() {
	p.mu.Unlock()
	for range 3 {
		runtime.Gosched()
	}
	p.mu.Lock()
}

func (p *plain) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (window.Window, error) {
	if p.is(acceptsHighLimits) {
		limit = min(limit, p.maxCount)
	}
	if err := p.check(scale, limit, increment); err != nil {
		return window.Window{}, err
	}
	p.mu.Lock()
	w := p.active(p.id(key, scale))
	skip := false
	if w != nil && p.ended(ctx) == nil {
		skip = p.skips && w.Count > limit ||
			p.is(skipsAtLimit) && w.Count >= limit ||
			p.is(comparesFirst) && w.Count+increment > limit
		if p.is(losesCountWhenDenied) && w.Count > limit {
			w.Count = 0
		}
	}
	if skip {
		c := p.state(w, scale)
		if !p.skips {
			c.Count += increment
		}
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	return p.Inc(ctx, key, scale, increment)
}

func (p *plain) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	if err := p.check(scale, increment); err != nil {
		return window.Window{}, err
	}
	if err := p.ended(ctx); err != nil && !p.is(checksContextTooLate) {
		return window.Window{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.id(key, scale)
	w := p.active(id)
	if w == nil {
		if p.is(zeroOpensNothing) && increment == 0 {
			return window.Window{}, nil
		}
		if p.is(opensTwice) {
			p.unlockBriefly()
		}
		return p.state(p.open(id, scale, increment), scale), p.ended(ctx)
	}
	count := w.Count + increment
	if count < increment && !p.is(wraps) {
		count = math.MaxUint64
	}
	if p.is(incStopsAtTen) && count == 11 {
		count = 10
	}
	if p.is(repeatsCounts) {
		p.unlockBriefly()
	}
	if n := p.hits.Add(1); !p.is(losesHits) || n%1000 != 0 {
		w.Count = count
	}
	w.UpdatedAt = p.mu.now
	if p.is(changesIDs) {
		p.identify(w)
	}
	if p.is(slides) {
		w.ExpiresAt = p.mu.now.Add(scale)
	}
	return p.state(w, scale), p.ended(ctx)
}

func (p *plain) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	if err := p.check(scale); err != nil && !p.is(getsAfterClose) {
		return window.Window{}, err
	}
	if err := p.ended(ctx); err != nil {
		return window.Window{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.id(key, scale)
	if w := p.active(id); w != nil {
		c := p.state(w, scale)
		if p.is(forgetsIDs) {
			c.ID = 0
		}
		return c, nil
	}
	if w := p.windows[id]; w != nil && p.is(getReturnsOver) {
		return p.state(w, scale), nil
	}
	if p.is(getOpens) {
		p.open(id, scale, 0)
	}
	return window.Window{}, nil
}

func (p *plain) Set(ctx context.Context, key string, scale time.Duration, count uint64) (window.Window, error) {
	if err := p.check(scale, count); err != nil {
		return window.Window{}, err
	}
	if err := p.ended(ctx); err != nil && !p.is(checksContextTooLate) {
		return window.Window{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.id(key, scale)
	old := p.active(id)
	if p.is(setNeedsWindow) && old == nil {
		return window.Window{Count: count}, nil
	}
	if p.is(setAdds) && old != nil {
		count += old.Count
	}
	w := p.open(id, scale, count)
	if p.is(setKeepsEnd) && old != nil {
		w.ExpiresAt = old.ExpiresAt
	}
	if p.is(setToZeroDeletes) && count == 0 {
		delete(p.windows, id)
	}
	return p.state(w, scale), p.ended(ctx)
}

func (p *plain) Reset(ctx context.Context, key string, scale time.Duration) error {
	if err := p.check(scale); err != nil {
		return err
	}
	switch p.fault {
	case resetDoesNothing:
		return ctx.Err()
	case resetEndsAllScales:
		_, err := p.Delete(ctx, key)
		return err
	case resetClearsOnly:
		p.mu.Lock()
		defer p.mu.Unlock()
		if w := p.active(p.id(key, scale)); w != nil && ctx.Err() == nil {
			w.Count = 0
		}
		return ctx.Err()
	}
	_, err := p.Delete(ctx, key, scale)
	return err
}

func (p *plain) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	for _, scale := range scales {
		if err := p.check(scale); err != nil && !p.is(deletesShortScales) {
			return 0, err
		}
	}
	if err := p.checkOpen(); err != nil {
		return 0, err
	}
	if err := p.ended(ctx); err != nil && !p.is(checksContextTooLate) {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []plainID
	for _, scale := range scales {
		ids = append(ids, p.id(key, scale))
	}
	if len(scales) == 0 && !p.is(deleteNeedsScales) || p.is(deleteIgnoresScales) {
		ids = nil
		for id := range p.windows {
			if id.key == key || p.is(deleteByPrefix) && strings.HasPrefix(id.key, key) {
				ids = append(ids, id)
			}
		}
	}
	n := 0
	for _, id := range ids {
		if p.active(id) != nil || p.windows[id] != nil && p.is(deleteCountsOver) {
			n++
		}
		delete(p.windows, id)
	}
	if p.is(deleteReturnsZero) {
		n = 0
	}
	return n, p.ended(ctx)
}
