package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// plain is the simplest backend. It is correct, unless it has a fault.
type plain struct {
	window.Unimplemented
	has      []window.Algorithm // nil: all
	skips    bool               // does not count hits on a fixed window over its limit
	maxCount uint64             // 0: no bound
	coarse   time.Duration      // the resolution of the clock; a token takes a multiple of it
	fault    fault

	ledger *ledger.Ledger // of places in flight

	hits   atomic.Int64
	closed atomic.Bool

	mu      clockMutex // guards what follows
	windows map[plainID]*window.Window
	rolling map[plainID]*rollingHits
	takes   map[int64]bucketTake
	last    int64 // number of the window or take that was made last
}

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
	key, name string
	scale     time.Duration
	algorithm window.Algorithm
	unit      window.Calendar
	zone      string
	startDay  uint8
}

func newPlain(now func() time.Time, f fault) *plain {
	origin := now()
	return &plain{
		mu: clockMutex{clock: now}, fault: f, ledger: ledger.New(1<<16, func() time.Duration { return now().Sub(origin) }),
		windows: map[plainID]*window.Window{}, rolling: map[plainID]*rollingHits{}, takes: map[int64]bucketTake{},
	}
}

// is reports whether the backend has the fault.
func (p *plain) is(f fault) bool { return p.fault == f }

func (p *plain) id(key string, l window.Limit) plainID {
	if !p.is(tellsUTCApart) {
		l = limits.Identity(&l)
	}
	id := plainID{key, l.Name, l.Scale, l.Algorithm, l.Calendar, l.Zone, l.StartDay}
	switch p.fault {
	case sharesUnits:
		id.unit = min(id.unit, window.Day)
	case sharesZones:
		id.zone = ""
	case sharesStartDays:
		id.startDay = 0
	case sharesScales:
		id.scale = time.Minute
	case sharesNames:
		id.name = ""
	case sharesAlgorithms:
		if !l.Algorithm.Rolling() {
			id.algorithm = window.FixedWindow
		}
	case joinsNames:
		id.key, id.name = l.Name+key, ""
	case joinsNamesColon:
		if l.Name != "" {
			id.key, id.name = key+":"+l.Name, ""
		}
	case joinsScales:
		id.key, id.scale = fmt.Sprint(key, l.Scale.Milliseconds()), time.Minute
	case joinsScalesFirst:
		id.key, id.scale = fmt.Sprint(l.Scale.Milliseconds())+key, time.Minute
	case cutsKeys:
		id.key = key[:min(len(key), 255)]
	case foldsKeys:
		id.key = strings.ToLower(key)
	case trimsKeys:
		id.key = strings.TrimSpace(key)
	case repairsKeys:
		id.key = strings.ToValidUTF8(key, "?")
	}
	return id
}

// Close makes later calls fail.
func (p *plain) Close() error {
	p.closed.Store(true)
	return nil
}

func (p *plain) Check(l window.Limit) (window.Traits, error) {
	if p.is(checksNoBound) {
		l.Max = min(l.Max, 5)
	}
	return window.Traits{MaxCount: p.maxCount, Precision: p.coarse}, p.check(l)
}

// check returns the error of calls with a limit.
func (p *plain) check(l window.Limit) error {
	switch {
	case p.is(hidesErrScale) && l.Scale < window.MinScale:
		return fmt.Errorf("plain: %v", limits.CheckScale(l.Scale))
	case p.is(acceptsShortScales) && l.Scale > 0:
		l.Scale = max(l.Scale, window.MinScale)
	case p.is(acceptsAlgorithms) && l.Algorithm > limits.LastAlgorithm:
		return nil
	}
	if err := limits.Check(l); err != nil {
		return err
	}
	if p.has != nil && !slices.Contains(p.has, l.Algorithm) && !p.is(acceptsAlgorithms) {
		return window.ErrUnsupported
	}
	if most := max(l.Max, l.Burst); p.maxCount > 0 && most > p.maxCount && !p.is(acceptsTooMuch) {
		if p.is(hidesErrRange) {
			return errors.New("plain: too large")
		}
		return &window.RangeError{Field: "Max", Value: fmt.Sprint(most), Bound: fmt.Sprint("at most ", p.maxCount)}
	}
	return nil
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

// do makes a call whose limit has been checked.
func (p *plain) do(ctx context.Context, err error, call func()) error {
	if err == nil {
		err = p.checkOpen()
	}
	if err == nil && !p.is(checksContextTooLate) {
		err = p.ended(ctx)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	call()
	return p.ended(ctx)
}

// pause lets other goroutines run, although the backend should not.
func (p *plain) pause() {
	p.mu.Unlock()
	for range 3 {
		runtime.Gosched()
	}
	p.mu.Lock()
}

// active returns the active fixed window, or nil. p.mu is held.
func (p *plain) active(id plainID, now time.Time) *window.Window {
	w := p.windows[id]
	if p.is(endsEarlySilently) {
		now = now.Add(time.Millisecond)
	}
	if w == nil || now.After(w.ExpiresAt) || now.Equal(w.ExpiresAt) && !p.is(endsLate) {
		return nil
	}
	return w
}

// open opens a fixed window. p.mu is held.
func (p *plain) open(id plainID, count uint64) *window.Window {
	start := p.mu.now
	end := start.Add(id.scale)
	switch {
	case id.algorithm == window.CalendarWindow:
		end = p.endOfDays(id)
	case (id.algorithm == window.AlignedWindow) != p.is(ignoresAlgorithm):
		end = limits.AlignedStart(start, id.scale).Add(id.scale)
	}
	w := &window.Window{Count: count, ExpiresAt: end}
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

// endOfDays returns when a calendar window that opens now ends. p.mu is held.
func (p *plain) endOfDays(id plainID) time.Time {
	l := window.Limit{Calendar: id.unit, Zone: id.zone, StartDay: id.startDay}
	switch p.fault {
	case ignoresZones:
		l.Zone = ""
	case ignoresStartDays:
		l.StartDay = 0
	}
	calendar, err := limits.CalendarOf(&l)
	if err != nil {
		panic(err) // the limit has been checked
	}
	start, end := calendar.Window(p.mu.now)
	switch {
	case p.is(addsLengths):
		return start.Add(map[window.Calendar]time.Duration{window.Day: 24, window.Week: 7 * 24, window.Month: 30 * 24, window.Year: 365 * 24}[id.unit] * time.Hour)
	case p.is(endsADayFromNow):
		return p.mu.now.Add(end.Sub(start))
	}
	return end
}

// identify sets the ID of a window that was opened. p.mu is held.
func (p *plain) identify(w *window.Window) {
	if p.last++; p.is(repeatsIDs) {
		w.ID = w.ExpiresAt.UnixNano()
		return
	}
	w.ID = p.last
}

// count returns the count at a time, and when it is 0. p.mu is held.
func (p *plain) count(id plainID, l window.Limit, at time.Time) (n uint64, end time.Time) {
	if l.Algorithm.Rolling() {
		n, end := p.known(id, l).count(p, l, at.UnixNano())
		return n, time.Unix(0, end).UTC()
	}
	if w := p.active(id, at); w != nil {
		return w.Count, w.ExpiresAt
	}
	return 0, at
}

// state returns the window for the caller. p.mu is held.
func (p *plain) state(id plainID, l window.Limit) (w window.Window) {
	if l.Algorithm.Rolling() {
		count, end := p.count(id, l, p.mu.now)
		if w.Count = count; count > 0 {
			if p.is(returnsLateEnd) {
				end = end.Add(1)
			}
			w.ExpiresAt, w.Left, w.ID = end, end.Sub(p.mu.now), -1
		}
		return w
	}
	active := p.active(id, p.mu.now)
	if active == nil {
		return w
	}
	w = *active
	switch p.fault {
	case returnsLateEnd:
		w.ExpiresAt = w.ExpiresAt.Add(time.Millisecond)
	case returnsNoEnd:
		w.ExpiresAt = time.Time{}
	}
	w.Left = w.ExpiresAt.Sub(p.mu.now)
	if p.is(returnsWrongLeft) {
		w.Left = id.scale
	}
	return w
}

// fits reports whether n fit at a time. p.mu is held.
func (p *plain) fits(id plainID, l window.Limit, at time.Time, n uint64) bool {
	holds := limits.Capacity(l)
	switch p.fault {
	case ignoresBurst:
		holds = l.Max
	case grantsOneMore:
		holds++
	case refusesLast:
		if n > 0 {
			holds -= min(holds, 1)
		}
	case grantsEarly:
		at = at.Add(1)
	}
	count, _ := p.count(id, l, at)
	switch p.fault {
	case takesTooMuch:
		return n <= holds && count < holds || n == 0 && count <= holds
	case wraps:
		return uint32(count+n) <= uint32(holds)
	case wrapsSums:
		return int64(count+n) <= int64(holds)
	}
	return n <= holds && count <= holds-n
}

// retry returns when n fit, from now. p.mu is held.
func (p *plain) retry(id plainID, l window.Limit, n uint64) time.Duration {
	now := p.mu.now
	_, end := p.count(id, l, now)
	left := end.Sub(now)
	switch {
	case p.is(forgetsRetry) || n == 0 && p.is(retriesNow):
		return 0
	case n > limits.Capacity(l) && !p.is(retriesAtEnd) && !p.is(forgetsNever):
		return window.Never
	case n > limits.Capacity(l) || p.is(retriesAtEnd) || !l.Algorithm.Rolling():
		return max(left, 1)
	}
	if p.is(retriesOfOne) {
		n = 1
	}
	lower, upper := time.Duration(0), left // it does not fit after lower, and does after upper
	try := func(after time.Duration) {
		if p.fits(id, l, now.Add(after), n) {
			upper = after
		} else {
			lower = after
		}
	}
	if l.Algorithm == window.TokenBucket { // a guess, from how much of the bucket has to come back, makes the search short
		guess := left - time.Duration(p.up(p.each(l, limits.Capacity(l)-n)))
		for _, after := range []time.Duration{guess - p.coarse - 2, guess + p.coarse + 2} {
			if lower < after && after < upper {
				try(after)
			}
		}
	}
	for upper-lower > 1 {
		try((lower + upper) / 2)
	}
	switch p.fault {
	case retriesEarly:
		return max(1, upper-1)
	case retriesLate:
		return upper + time.Millisecond
	}
	return time.Duration(p.tick(int64(upper)))
}

// add counts n, and returns the ID of the window or take. p.mu is held.
func (p *plain) add(id plainID, l window.Limit, n uint64) int64 {
	if l.Algorithm.Rolling() {
		return p.addRolling(id, l, n)
	}
	w, most := p.active(id, p.mu.now), uint64(math.MaxUint64)
	if p.maxCount > 0 {
		most = p.maxCount
	}
	if w == nil {
		if p.is(opensTwice) {
			p.pause()
		}
		return p.open(id, min(n, most)).ID
	}
	count := w.Count + n
	if (count < n || count > most) && !p.is(wraps) {
		count = most
	}
	if p.is(repeatsCounts) {
		p.pause()
	}
	if n := p.hits.Add(1); !p.is(losesHits) || n%1000 != 0 {
		w.Count = count
	}
	if p.is(changesIDs) {
		p.identify(w)
	}
	if p.is(slides) {
		w.ExpiresAt = p.mu.now.Add(id.scale)
	}
	return w.ID
}

func (p *plain) Hit(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if l.Algorithm.Rolling() {
		return p.Take(ctx, key, l, n)
	}
	checked := l
	if p.is(acceptsHighLimits) {
		checked.Max = min(l.Max, p.maxCount)
	}
	err = p.do(ctx, p.check(checked), func() {
		id := p.id(key, l)
		skip := false
		if active := p.active(id, p.mu.now); active != nil {
			if p.maxCount > 0 && active.Count+n > p.maxCount {
				w = p.state(id, l)
				w.Refused, w.RetryAfter = true, p.retry(id, l, 1)
				return
			}
			skip = p.skips && active.Count > l.Max || p.is(skipsAtLimit) && active.Count >= l.Max || p.is(comparesFirst) && active.Count+n > l.Max
			if p.is(losesCountWhenDenied) && active.Count > l.Max {
				active.Count = 0
			}
		}
		if !skip && (n > 0 || !p.is(zeroOpensNothing)) {
			p.add(id, l, n)
		}
		if w = p.state(id, l); skip && !p.skips {
			w.Count += n
		}
	})
	return w, err
}

func (p *plain) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	windows := make([]window.Window, 1)
	_, err := p.TakeAll(ctx, []window.Take{l.For(key, n)}, windows)
	return windows[0], err
}

func (p *plain) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	if p.is(leavesOut) && len(takes) > 1 {
		return p.Unimplemented.TakeAll(ctx, takes, windows)
	}
	for _, t := range takes {
		if p.is(acceptsHighTakes) {
			t.Limit.Max = min(t.Limit.Max, p.maxCount)
		}
		if err := p.check(t.Limit); err != nil {
			return false, err
		}
	}
	err = p.do(ctx, nil, func() { granted = p.takeAll(takes, windows) })
	return granted, err
}

// takeAll makes all takes or none. p.mu is held.
func (p *plain) takeAll(takes []window.Take, windows []window.Window) (granted bool) {
	sums, granted, early := p.sums(takes), true, len(takes) > 1 && (p.is(keepsFirst) || p.is(takesOneByOne))
	for i, t := range takes {
		id, sum := p.id(t.Key, t.Limit), sums[i]
		fits := p.fits(id, sum.Limit, p.mu.now, sum.N)
		windows[i] = p.state(id, sum.Limit)
		if fits {
			if p.is(opensFirst) {
				p.add(id, t.Limit, 0)
			}
			if early {
				p.add(id, t.Limit, t.N)
				p.pause()
			}
			continue
		}
		granted = false
		windows[i].Refused, windows[i].RetryAfter = !p.is(forgetsRefused), p.retry(id, sum.Limit, sum.N)
		switch p.fault {
		case refusalCounts:
			p.add(id, t.Limit, t.N)
		case refusalCountsPart:
			if w := p.active(id, p.mu.now); w != nil {
				w.Count = max(w.Count, t.Limit.Max)
			}
		case refusalOpens:
			p.add(id, t.Limit, 0)
		case refusalForgets:
			delete(p.rolling, id)
		case keepsFirst:
			return false
		}
		if p.is(takesOneByOne) && early {
			p.pause()
			p.undo(takes[:i])
			return false
		}
	}
	if !granted || early {
		return granted
	}
	if p.is(takesSlowly) {
		p.pause()
	}
	ids := make([]int64, len(takes))
	for i, t := range takes {
		ids[i] = p.add(p.id(t.Key, t.Limit), sums[i].Limit, t.N)
	}
	for i, t := range takes {
		windows[i] = p.state(p.id(t.Key, t.Limit), sums[i].Limit)
		windows[i].ID = ids[i]
	}
	return true
}

// sums returns for each take that of its count: of their sum, under the lowest Max and Burst.
func (p *plain) sums(takes []window.Take) []window.Take {
	merged, index := limits.Merge(takes)
	if index == nil || p.is(checksEach) {
		return takes
	}
	sums := make([]window.Take, len(takes))
	for i, at := range index {
		if sums[i] = merged[at]; p.is(sumsUnderOwn) {
			sums[i].Limit = takes[i].Limit
		}
	}
	return sums
}

// undo takes back what takesOneByOne has counted. p.mu is held.
func (p *plain) undo(takes []window.Take) {
	for _, t := range takes {
		id := p.id(t.Key, t.Limit)
		delete(p.rolling, id)
		if w := p.active(id, p.mu.now); w != nil {
			w.Count -= min(t.N, w.Count)
		}
	}
}

func (p *plain) Charge(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	over := false
	err = p.do(ctx, p.check(l), func() {
		id := p.id(key, l)
		count, _ := p.count(id, l, p.mu.now)
		if over = p.is(refusesCharges) && (n > p.maxCount-count || l.Algorithm == window.TokenBucket && count+n > 2*limits.Capacity(l)); over {
			return
		}
		if p.is(chargesWhatFits) {
			n = min(n, limits.Capacity(l)-min(limits.Capacity(l), count))
		}
		p.chargeSome(id, l, n, count)
		w = p.state(id, l)
	})
	if over {
		return w, window.ErrRange
	}
	return w, err
}

// chargeSome counts n on a count, up to the largest. p.mu is held.
func (p *plain) chargeSome(id plainID, l window.Limit, n, count uint64) {
	most := window.Unlimited
	if p.maxCount > 0 {
		most = p.maxCount
	}
	switch room := most - min(most, count); {
	case !l.Algorithm.Rolling():
		p.add(id, l, n)
	case l.Algorithm == window.TokenBucket && limits.Capacity(l) == 0: // it has no tokens to owe
	case l.Algorithm == window.TokenBucket && !p.is(owesMore):
		h := p.known(id, l)
		before := h.full
		p.addRolling(id, l, min(n, 3*limits.Capacity(l)))
		owed := new(big.Rat).Add(new(big.Rat).SetInt64(p.mu.now.UnixNano()), p.each(l, 2*limits.Capacity(l)))
		if owed.Cmp(before) < 0 {
			owed = before
		}
		if h = p.rolling[id]; h.full.Cmp(owed) > 0 {
			h.full = owed
		}
	case min(n, room) > 0:
		p.addRolling(id, l, min(n, room))
	}
}

func (p *plain) Peek(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if err := p.checkOpen(); err != nil && !p.is(getsAfterClose) {
		return w, err
	}
	if err := p.check(l); err != nil {
		return w, err
	}
	if err := p.ended(ctx); err != nil {
		return w, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.id(key, l)
	if p.is(peekOpens) && p.active(id, p.mu.now) == nil && !l.Algorithm.Rolling() {
		defer p.open(id, 0)
	}
	w = p.state(id, l)
	if w.Refused = !p.fits(id, l, p.mu.now, n); w.Refused && !p.is(peekForgetsRetry) {
		w.RetryAfter = p.retry(id, l, n)
	}
	if w.Left == 0 && p.is(peeksPast) && p.windows[id] != nil {
		w = *p.windows[id]
	}
	if p.is(peekTakes) && !w.Refused {
		p.add(id, l, n)
	}
	return w, nil
}

func (p *plain) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = p.check(l)
	if err == nil && p.maxCount > 0 && n > p.maxCount && !p.is(setsTooMuch) {
		err = window.ErrRange
	}
	err = p.do(ctx, err, func() {
		id := p.id(key, l)
		if p.is(setToZeroKeeps) && n == 0 && l.Algorithm.Rolling() {
			return
		}
		before, end := p.count(id, l, p.mu.now)
		if p.is(setNeedsWindow) && !end.After(p.mu.now) {
			w = window.Window{Count: n}
			return
		}
		if p.is(setAdds) {
			n += before
		}
		if l.Algorithm.Rolling() {
			if delete(p.rolling, id); n > 0 {
				p.addRolling(id, l, min(n, 2*limits.Capacity(l)))
			}
			w = p.state(id, l)
			return
		}
		opened := p.open(id, n)
		if p.is(setKeepsEnd) && end.After(p.mu.now) {
			opened.ExpiresAt = end
		}
		if p.is(setToZeroDeletes) && n == 0 {
			delete(p.windows, id)
		}
		w = p.state(id, l)
	})
	return w, err
}

func (p *plain) Reset(ctx context.Context, key string, l window.Limit) error {
	return p.do(ctx, p.check(l), func() {
		id := p.id(key, l)
		switch p.fault {
		case resetDoesNothing:
		case resetEndsAllScales:
			p.end(func(i plainID) bool { return i.key == id.key })
		case resetEndsAllNames:
			p.end(func(i plainID) bool { return i.key == id.key && i.scale == id.scale && i.algorithm == id.algorithm })
		case resetEndsAllAlgorithms:
			p.end(func(i plainID) bool { return i.key == id.key && i.scale == id.scale && i.name == id.name })
		case resetClearsOnly:
			if w := p.active(id, p.mu.now); w != nil {
				w.Count = 0
			}
		default:
			p.end(func(i plainID) bool { return i == id })
		}
	})
}

// end ends windows and returns how many there were. p.mu is held.
func (p *plain) end(which func(plainID) bool) (n int) {
	for id := range p.windows {
		if which(id) {
			if p.active(id, p.mu.now) != nil || p.is(deleteCountsOver) {
				n++
			}
			delete(p.windows, id)
		}
	}
	for id, h := range p.rolling {
		if which(id) {
			l := window.Limit{Max: max(1, h.max), Scale: id.scale, Algorithm: id.algorithm}
			if count, _ := p.count(id, l, p.mu.now); count > 0 {
				n++
			}
			delete(p.rolling, id)
		}
	}
	return n
}

func (p *plain) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	for _, scale := range scales {
		l := window.Limit{Max: 1, Scale: scale, Algorithm: window.FixedWindow}
		if p.has != nil {
			l.Algorithm = p.has[0]
		}
		if err := p.check(l); err != nil && !p.is(deletesShortScales) {
			return 0, err
		}
	}
	err = p.do(ctx, nil, func() {
		n = p.end(func(id plainID) bool {
			switch {
			case id.key != key && !(p.is(deleteByPrefix) && strings.HasPrefix(id.key, key)),
				p.is(deleteKeepsNames) && id.name != "", p.is(deleteKeepsAlgorithms) && id.algorithm != window.FixedWindow,
				p.is(deleteNeedsScales) && len(scales) == 0:
				return false
			}
			return len(scales) == 0 || slices.Contains(scales, id.scale) || p.is(deleteIgnoresScales)
		})
	})
	if p.is(deleteReturnsZero) {
		n = 0
	}
	return n, err
}

func (p *plain) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (ok bool, err error) {
	err = p.do(ctx, p.check(l), func() {
		switch p.fault {
		case givesNothingBack:
			n = 0
		case givesBackTwice:
			n *= 2
		case deniesGivingBack:
			return
		}
		if l.Algorithm.Rolling() {
			ok = p.giveRollingBack(p.id(key, l), l, n, id)
			return
		}
		w := p.active(p.id(key, l), p.mu.now)
		if w == nil || w.ID != id && !p.is(givesBackToAny) {
			return
		}
		count := w.Count - min(n, w.Count)
		if p.is(givesBackSlowly) {
			p.pause()
		}
		if ok, w.Count = true, count; p.is(endsEmpty) && count == 0 {
			delete(p.windows, p.id(key, l))
		}
	})
	return ok, err
}
