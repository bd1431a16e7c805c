package backendtest

import (
	"context"
	"iter"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

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
