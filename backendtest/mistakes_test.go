package backendtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// ofCalls makes calls with another key, limit, number or ID. Of TakeAll, this is done to each take.
func ofCalls(f func(b attempt, c *call)) mistake {
	return func(b attempt, c call) answer {
		switch c.method {
		case exchange, deleteAll:
			return b.right(c)
		case takeAll:
			c.takes = slices.Clone(c.takes)
			for i := range c.takes {
				one := call{method: take, Take: c.takes[i]}
				f(b, &one)
				c.takes[i] = one.Take
			}
			return b.right(c)
		}
		f(b, &c)
		return b.right(c)
	}
}

// ofKeys changes the keys of calls.
func ofKeys(f func(key string) string) mistake {
	return ofCalls(func(_ attempt, c *call) { c.Key = f(c.Key) })
}

// ofLimits changes the limits of calls.
func ofLimits(f func(l *window.Limit)) mistake {
	return ofCalls(func(_ attempt, c *call) { f(&c.Limit) })
}

// ofCapacity changes how much a limit holds.
func ofCapacity(f func(holds uint64) uint64) mistake {
	return ofLimits(func(l *window.Limit) {
		if l.Algorithm == window.TokenBucket {
			l.Burst = f(limits.Capacity(l))
		} else {
			l.Max = f(l.Max)
		}
	})
}

// ofWindows changes what methods return of windows.
func ofWindows(f func(b attempt, c call, w *window.Window)) mistake {
	return func(b attempt, c call) answer {
		a := b.right(c)
		for i := range a.windows {
			f(b, call{method: take, Take: c.takes[i]}, &a.windows[i])
		}
		if a.err == nil && c.Limit.Algorithm != 0 && c.method != check {
			f(b, c, &a.Window)
		}
		return a
	}
}

// ofRefusals does something after a take has been refused.
func ofRefusals(f func(b attempt, c call, w *window.Window)) mistake {
	return ofWindows(func(b attempt, c call, w *window.Window) {
		if w.Refused && c.method != peek {
			f(b, c, w)
		}
	})
}

// retrying changes how long a caller who is refused waits.
func retrying(f func(w window.Window) time.Duration) mistake {
	return ofWindows(func(_ attempt, _ call, w *window.Window) {
		if w.Refused {
			w.RetryAfter = f(*w)
		}
	})
}

// instead makes calls of some methods otherwise.
func instead(m method, f func(b attempt, c call) answer) mistake {
	return func(b attempt, c call) answer {
		if c.method == m {
			return f(b, c)
		}
		return b.right(c)
	}
}

// ofTakes makes takes, one or several, otherwise. It has to fill the windows.
func ofTakes(f func(b attempt, all []call, windows []window.Window) (granted bool)) mistake {
	return func(b attempt, c call) (a answer) {
		several := c.method == takeAll
		if !several && c.method != take && (c.method != hit || !c.Limit.Algorithm.Rolling()) {
			return b.right(c)
		}
		if !several {
			c.takes = []window.Take{c.Take}
		}
		all := make([]call, len(c.takes))
		for i, t := range c.takes {
			all[i] = call{method: take, Take: t}
			if a.err = b.to(all[i], check, 0).err; a.err != nil {
				return a
			}
		}
		a.windows = make([]window.Window, len(all))
		a.ok = f(b, all, a.windows)
		if !several {
			return answer{Window: a.windows[0]}
		}
		return a
	}
}

// takeAll makes takes in the right way.
func (b attempt) takeAll(all []call, windows []window.Window) bool {
	right := call{method: takeAll}
	for _, c := range all {
		right.takes = append(right.takes, c.Take)
	}
	a := b.right(right)
	copy(windows, a.windows)
	return a.ok && a.err == nil
}

// fit reports whether takes would be granted, each for itself, and stores the windows.
func (b attempt) fit(all []call, windows []window.Window) bool {
	granted := true
	for i, c := range all {
		windows[i] = b.to(c, peek, c.N).Window
		granted = granted && !windows[i].Refused
	}
	return granted
}

// charge counts takes.
func (b attempt) charge(all []call, windows []window.Window) bool {
	for i, c := range all {
		windows[i] = b.to(c, charge, c.N).Window
	}
	return true
}

// hiding returns errors that do not match one any more.
func hiding(hidden error) mistake {
	return func(b attempt, c call) answer {
		a := b.right(c)
		if errors.Is(a.err, hidden) {
			a.err = errors.New(a.err.Error())
		}
		return a
	}
}

// endless returns an attempt whose context does not end.
func (b attempt) endless() attempt { return attempt{b.wrong, context.WithoutCancel(b.ctx)} }

// checkedLate looks at the context after the call.
func checkedLate(b attempt, c call) answer {
	a := b.endless().right(c)
	if b.ctx.Err() != nil {
		a.err = b.ctx.Err()
	}
	return a
}

// ending ends the windows of a key that are of some limits, in place of Reset or Delete.
func ending(m method, which func(l, of window.Limit) bool) mistake {
	return instead(m, func(b attempt, c call) (a answer) {
		if a.err = b.right(c).err; a.err != nil { // as it fails, or as it ends what it should
			return a
		}
		for l := range b.Backend.List(b.ctx, c.Key) {
			if which(l.Limit, c.Limit) {
				a.deleted++
				b.Backend.Reset(b.ctx, c.Key, l.Limit)
			}
		}
		return a
	})
}

// ofClaims changes the claims on places in flight. It is told how many are held.
func ofClaims(f func(b attempt, claim *window.Claim, held uint64)) mistake {
	return instead(exchange, func(b attempt, c call) (a answer) {
		for _, claim := range c.claims {
			claim.Wants = slices.Clone(claim.Wants)
			known := b.right(call{method: exchange, claims: []window.Claim{{Key: claim.Key, Name: claim.Name}}})
			f(b, &claim, known.places[0].Used)
			one := b.right(call{method: exchange, claims: []window.Claim{claim}})
			a.places = append(a.places, one.places...)
			a.err = errors.Join(a.err, one.err)
		}
		return a
	})
}

// ofListed lists something else in place of each count.
func ofListed(f func(l window.Listed) []window.Listed) mistake {
	return instead(list, func(b attempt, c call) answer {
		each := c.each
		c.each = func(l window.Listed) bool {
			return !slices.ContainsFunc(f(l), func(l window.Listed) bool { return !each(l) })
		}
		return b.right(c)
	})
}

// ofEach changes what is listed.
func ofEach(f func(l *window.Listed)) mistake {
	return ofListed(func(l window.Listed) []window.Listed {
		f(&l)
		return []window.Listed{l}
	})
}

// locked holds a lock in the loops over lists, which takes need.
func locked() mistake {
	var mu sync.Mutex
	return func(b attempt, c call) answer {
		if c.method == list || c.method == take {
			mu.Lock()
			defer mu.Unlock()
		}
		return b.right(c)
	}
}

// ofPlaces changes the answers to claims.
func ofPlaces(f func(p *window.Places)) mistake {
	return instead(exchange, func(b attempt, c call) answer {
		a := b.right(c)
		for i := range a.places {
			f(&a.places[i])
		}
		return a
	})
}

// postponed returns a window whose end is later.
func postponed(w window.Window, d time.Duration) window.Window {
	if w.Left > 0 {
		w.ExpiresAt = w.ExpiresAt.Add(d)
		w.Left += d
	}
	return w
}

// ofWants changes wants of places in flight. It is told how many are held.
func ofWants(f func(w *window.Want, held uint64)) mistake {
	return ofClaims(func(_ attempt, c *window.Claim, held uint64) {
		for i := range c.Wants {
			f(&c.Wants[i], held)
		}
	})
}

// ofLengths changes how long fixed windows last, and the end that is returned.
func ofLengths(longer, hidden time.Duration) mistake {
	last := ofLimits(func(l *window.Limit) {
		if l.Algorithm == window.FixedWindow && l.Scale >= window.MinScale {
			l.Scale += longer
		}
	})
	return func(b attempt, c call) answer {
		a := last(b, c)
		a.Window = postponed(a.Window, -hidden)
		return a
	}
}

// ofLength turns windows of the calendar into those of a fixed length.
func ofLength(a window.Algorithm) mistake {
	days := map[window.Calendar]time.Duration{window.Day: 1, window.Week: 7, window.Month: 30, window.Year: 365}
	return ofLimits(func(l *window.Limit) {
		if l.Calendar != 0 {
			*l = window.Limit{Name: l.Name, Max: l.Max, Scale: days[l.Calendar] * 24 * time.Hour, Algorithm: a}
		}
	})
}

// bounded makes a backend one with a largest count.
func bounded(b attempt, c call) answer {
	for _, t := range append(slices.Clone(c.takes), c.Take) {
		if largest := max(t.Limit.Max, t.Limit.Burst); largest > most && b.to(call{Take: t}, check, 0).err == nil {
			return answer{err: &window.RangeError{Field: "Max", Value: fmt.Sprint(largest), Bound: fmt.Sprint("at most ", most)}}
		}
	}
	switch {
	case c.method == set && c.N > most:
		return answer{err: window.ErrRange}
	case c.method == charge && !c.Limit.Algorithm.Rolling():
		c.N = min(c.N, most-min(most, b.state(c).Count))
	}
	a := b.right(c)
	if c.method == check {
		a.traits.MaxCount = most
	}
	return a
}

// wrong is a backend with a mistake: a correct one, some calls of which it makes in another way.
type wrong struct {
	window.Backend
	now     func() time.Time
	mistake mistake
	hits    atomic.Int64 // for the use of the mistake

	mu    sync.Mutex                    // guards what follows
	calls int                           // that change something
	last  map[window.Take]window.Window // by what countOf returns
}

// mistake makes calls of all methods. The right way is b.right(c).
type mistake func(b attempt, c call) answer

// attempt is a call of a wrong backend.
type attempt struct {
	*wrong
	ctx context.Context
}

// newWrong returns a client of a store.
func newWrong(store window.Backend, now func() time.Time, m mistake) *wrong {
	return &wrong{Backend: store, now: now, mistake: m, last: map[window.Take]window.Window{}}
}

// right makes a call in the right way.
func (b attempt) right(c call) answer { return c.of(b.ctx, b.Backend) }

// to makes another call of the same count in the right way.
func (b attempt) to(c call, m method, n uint64) answer {
	c.method, c.N = m, n
	return b.right(c)
}

// state returns the window of a call.
func (b attempt) state(c call) window.Window {
	w := b.to(c, peek, 0).Window
	w.Refused, w.RetryAfter = false, 0
	return w
}

// countOf returns which count a take is of.
func countOf(t window.Take) window.Take { return limits.Identity(&t.Limit).For(t.Key, 0) }

// before returns the last window of a count that a call of this client has returned.
func (b attempt) before(c call) window.Window {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[countOf(c.Take)]
}

// counts returns what the calls of this client have returned of each count.
func (b attempt) counts() map[window.Take]window.Window {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.last)
}

// uncounted returns what a hit would return that counts nothing.
func (b attempt) uncounted(c call) answer {
	w := b.state(c)
	w.Count += c.N
	return answer{Window: w}
}

// clear gives back all that is counted in a fixed window.
func (b attempt) clear(c call) {
	c.id = b.before(c).ID
	b.to(c, giveBack, b.state(c).Count)
}

// pause lets others call, and reports whether they have changed something.
func (b attempt) pause() bool {
	calls := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.calls
	}
	was := calls()
	for range 3 {
		runtime.Gosched()
	}
	return calls() != was
}

// do makes a call with the mistake.
func (b *wrong) do(ctx context.Context, c call) answer {
	a := b.mistake(attempt{b, ctx}, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.method != peek {
		b.calls++
	}
	if a.ID != 0 && c.method != peek {
		b.last[countOf(c.Take)] = a.Window
	}
	for i, w := range a.windows {
		b.last[countOf(c.takes[i])] = w
	}
	return a
}

func (b *wrong) of(ctx context.Context, m method, key string, l window.Limit, n uint64) (window.Window, error) {
	a := b.do(ctx, call{method: m, Take: l.For(key, n)})
	return a.Window, a.err
}

func (b *wrong) Check(l window.Limit) (window.Traits, error) {
	a := b.do(context.Background(), call{method: check, Take: l.For("", 0)})
	return a.traits, a.err
}

func (b *wrong) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.of(ctx, hit, key, l, n)
}

func (b *wrong) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.of(ctx, take, key, l, n)
}

func (b *wrong) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.of(ctx, charge, key, l, n)
}

func (b *wrong) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.of(ctx, peek, key, l, n)
}

func (b *wrong) Set(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.of(ctx, set, key, l, n)
}

func (b *wrong) Reset(ctx context.Context, key string, l window.Limit) error {
	_, err := b.of(ctx, reset, key, l, 0)
	return err
}

func (b *wrong) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (bool, error) {
	a := b.do(ctx, call{method: giveBack, Take: l.For(key, n), id: id})
	return a.ok, a.err
}

func (b *wrong) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	a := b.do(ctx, call{method: deleteAll, Take: window.Take{Key: key}, scales: scales})
	return a.deleted, a.err
}

func (b *wrong) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	a := b.do(ctx, call{method: takeAll, takes: takes})
	copy(windows, a.windows)
	return a.ok, a.err
}

func (b *wrong) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	if len(places) != len(claims) {
		return b.Backend.Exchange(ctx, claims, places)
	}
	a := b.do(ctx, call{method: exchange, claims: claims})
	copy(places, a.places)
	return a.err
}

func (b *wrong) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		each := func(l window.Listed) bool { return yield(l, nil) }
		if a := b.do(ctx, call{method: list, keys: keys, each: each}); a.err != nil {
			yield(window.Listed{}, a.err)
		}
	}
}

func (b *wrong) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	return func(yield func(window.ListedPlaces, error) bool) {
		a := b.do(ctx, call{method: listPlaces, keys: keys})
		for _, l := range a.held {
			if !yield(l, nil) {
				return
			}
		}
		if a.err != nil {
			yield(window.ListedPlaces{}, a.err)
		}
	}
}
