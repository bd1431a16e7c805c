package backendtest_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// plain is a backend in the plainest way. It is right, unless it has a fault.
type plain struct {
	now       func() time.Time
	algorithm window.Algorithm
	skips     bool // leaves hits uncounted when the window is over limit
	fault     fault

	mu      sync.Mutex
	windows map[plainID]*window.Window
	hits    atomic.Int64
}

var _ window.Backend = (*plain)(nil)

type plainID struct {
	key   string
	scale time.Duration
}

func newPlain(now func() time.Time, a window.Algorithm, f fault) *plain {
	return &plain{now: now, algorithm: a, fault: f, windows: map[plainID]*window.Window{}}
}

// fault is what is wrong with a backend.
type fault string

const (
	none                  fault = ""
	losesHits             fault = "a hit in 1000 is not counted"
	givesPlacesTwice      fault = "between reading and adding, others add"
	opensTwice            fault = "between looking and opening, others open"
	endsLate              fault = "a window is active at its end"
	endsEarly             fault = "a window ends a millisecond early"
	endsEarlyInBetween    fault = "a window ends a millisecond early, but says otherwise"
	tellsLateEnd          fault = "a window says it ends a millisecond late"
	tellsNoEnd            fault = "a window does not say when it ends"
	tellsWrongLeft        fault = "a window says that a scale is left"
	tellsWrongStart       fault = "a window says it started now"
	tellsWrongUpdate      fault = "a window says it was added to when it started"
	slides                fault = "a hit moves the window's end"
	ignoresAlgorithm      fault = "windows are of the other algorithm"
	sharesScales          fault = "the scales of a key share a window"
	joinsNames            fault = "key and scale are joined without care"
	joinsNamesScaleFirst  fault = "scale and key are joined without care"
	cutsKeys              fault = "keys are cut at 255 bytes"
	foldsKeys             fault = "keys are folded to lower case"
	trimsKeys             fault = "keys are trimmed"
	cleansKeys            fault = "keys are made valid UTF-8"
	wraps                 fault = "counts wrap around"
	comparesFirst         fault = "a hit that would be denied is not counted"
	skipsAtLimit          fault = "a hit on a full window is not counted"
	losesCountWhenDenied  fault = "a hit on a window over limit clears the count"
	zeroOpensNothing      fault = "an increment of 0 opens no window"
	incStopsAtTen         fault = "Inc does not go over 10"
	getOpens              fault = "Get opens a window"
	getTellsOver          fault = "Get tells of a window that is over"
	setKeepsEnd           fault = "Set keeps the window's end"
	setAdds               fault = "Set adds to the count"
	setNeedsWindow        fault = "Set opens no window"
	setToZeroDeletes      fault = "Set to 0 ends the window"
	resetDoesNothing      fault = "Reset does nothing"
	resetEndsAllScales    fault = "Reset ends the windows of all scales"
	resetClearsOnly       fault = "Reset clears the count and leaves the end"
	deleteTellsNothing    fault = "Delete returns 0"
	deleteCountsOver      fault = "Delete counts windows that are over"
	deleteIgnoresScales   fault = "Delete deletes all scales if some are named"
	deleteNeedsScales     fault = "Delete deletes nothing if no scale is named"
	deleteByPrefix        fault = "Delete deletes keys that begin alike"
	ignoresContext        fault = "the context is not looked at"
	looksAtContextTooLate fault = "the context is looked at after the call is made"
	hidesContext          fault = "the error does not match the context's"
	forgetsKeys           fault = "of more than 20 windows, one is forgotten"
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
	case cleansKeys:
		key = strings.ToValidUTF8(key, "?")
	}
	return plainID{key, scale}
}

// ended returns the ctx's error, once it has one.
func (p *plain) ended(ctx context.Context) error {
	switch {
	case p.is(ignoresContext):
		return nil
	case p.is(hidesContext) && ctx.Err() != nil:
		return fmt.Errorf("plain: %v", ctx.Err())
	}
	return ctx.Err()
}

// active returns the active window, or nil. The mutex is held.
func (p *plain) active(id plainID) *window.Window {
	w := p.windows[id]
	now := p.now()
	if p.is(endsEarlyInBetween) {
		now = now.Add(time.Millisecond)
	}
	if w == nil || now.After(w.ExpiresAt) || now.Equal(w.ExpiresAt) && !p.is(endsLate) {
		return nil
	}
	return w
}

// open opens a window. The mutex is held.
func (p *plain) open(id plainID, scale time.Duration, count uint64) *window.Window {
	now, a := p.now(), p.algorithm
	if p.is(ignoresAlgorithm) {
		a = 1 - a
	}
	w := &window.Window{Count: count, StartedAt: a.Start(now, scale), UpdatedAt: now}
	w.ExpiresAt = w.StartedAt.Add(scale)
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

// tell returns a copy of w for the caller.
func (p *plain) tell(w *window.Window, scale time.Duration) window.Window {
	told := *w
	switch p.fault {
	case tellsLateEnd:
		told.ExpiresAt = told.ExpiresAt.Add(time.Millisecond)
	case tellsNoEnd:
		told.ExpiresAt = time.Time{}
	case tellsWrongStart:
		told.StartedAt = p.now()
	case tellsWrongUpdate:
		told.UpdatedAt = told.StartedAt
	}
	told.Left = told.ExpiresAt.Sub(p.now())
	if p.is(tellsWrongLeft) {
		told.Left = scale
	}
	return told
}

// others lets other goroutines in, where the backend should not.
func (p *plain) others() {
	p.mu.Unlock()
	for range 3 {
		runtime.Gosched()
	}
	p.mu.Lock()
}

func (p *plain) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (window.Window, error) {
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
		told := p.tell(w, scale)
		if !p.skips {
			told.Count += increment
		}
		p.mu.Unlock()
		return told, nil
	}
	p.mu.Unlock()
	return p.Inc(ctx, key, scale, increment)
}

func (p *plain) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	if err := p.ended(ctx); err != nil && !p.is(looksAtContextTooLate) {
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
			p.others()
		}
		return p.tell(p.open(id, scale, increment), scale), p.ended(ctx)
	}
	count := w.Count + increment
	if count < increment && !p.is(wraps) {
		count = math.MaxUint64
	}
	if p.is(incStopsAtTen) && count == 11 {
		count = 10
	}
	if p.is(givesPlacesTwice) {
		p.others()
	}
	if n := p.hits.Add(1); !p.is(losesHits) || n%1000 != 0 {
		w.Count = count
	}
	w.UpdatedAt = p.now()
	if p.is(slides) {
		w.ExpiresAt = p.now().Add(scale)
	}
	return p.tell(w, scale), p.ended(ctx)
}

func (p *plain) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	if err := p.ended(ctx); err != nil {
		return window.Window{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.id(key, scale)
	if w := p.active(id); w != nil {
		return p.tell(w, scale), nil
	}
	if w := p.windows[id]; w != nil && p.is(getTellsOver) {
		return p.tell(w, scale), nil
	}
	if p.is(getOpens) {
		p.open(id, scale, 0)
	}
	return window.Window{}, nil
}

func (p *plain) Set(ctx context.Context, key string, scale time.Duration, count uint64) (window.Window, error) {
	if err := p.ended(ctx); err != nil && !p.is(looksAtContextTooLate) {
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
	return p.tell(w, scale), p.ended(ctx)
}

func (p *plain) Reset(ctx context.Context, key string, scale time.Duration) error {
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
	if err := p.ended(ctx); err != nil && !p.is(looksAtContextTooLate) {
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
	if p.is(deleteTellsNothing) {
		n = 0
	}
	return n, p.ended(ctx)
}
