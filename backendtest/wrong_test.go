package backendtest_test

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
	last  map[window.Take]window.Window // by what count returns
	max   map[window.Take]uint64        // of the last limit
}

// mistake makes calls of all methods. The right way is b.right(c).
type mistake func(b *wrong, c call) answer

// call is a call of a method. Which fields it has depends on the method.
type call struct {
	method string
	ctx    context.Context
	window.Take
	id      int64           // of GiveBack
	scales  []time.Duration // of Delete
	takes   []window.Take   // of TakeAll
	windows []window.Window // of TakeAll
	claims  []window.Claim  // of Exchange
	places  []window.Places // of Exchange
	keys    []string        // of ListPlaces
}

// answer is what a method returns.
type answer struct {
	window.Window
	ok  bool // of GiveBack and TakeAll
	n   int  // of Delete
	err error

	traits window.Traits         // of Check
	listed []window.ListedPlaces // of ListPlaces
}

// newWrong returns a client of a store.
func newWrong(store window.Backend, now func() time.Time, m mistake) *wrong {
	return &wrong{Backend: store, now: now, mistake: m, last: map[window.Take]window.Window{}, max: map[window.Take]uint64{}}
}

// right makes a call in the right way.
func (b *wrong) right(c call) (a answer) {
	switch c.method {
	case "Check":
		a.traits, a.err = b.Backend.Check(c.Limit)
	case "Hit":
		a.Window, a.err = b.Backend.Hit(c.ctx, c.Key, c.Limit, c.N)
	case "Take":
		a.Window, a.err = b.Backend.Take(c.ctx, c.Key, c.Limit, c.N)
	case "Charge":
		a.Window, a.err = b.Backend.Charge(c.ctx, c.Key, c.Limit, c.N)
	case "Peek":
		a.Window, a.err = b.Backend.Peek(c.ctx, c.Key, c.Limit, c.N)
	case "Set":
		a.Window, a.err = b.Backend.Set(c.ctx, c.Key, c.Limit, c.N)
	case "Reset":
		a.err = b.Backend.Reset(c.ctx, c.Key, c.Limit)
	case "GiveBack":
		a.ok, a.err = b.Backend.GiveBack(c.ctx, c.Key, c.Limit, c.N, c.id)
	case "Delete":
		a.n, a.err = b.Backend.Delete(c.ctx, c.Key, c.scales...)
	case "TakeAll":
		a.ok, a.err = b.Backend.TakeAll(c.ctx, c.takes, c.windows)
	case "Exchange":
		a.err = b.Backend.Exchange(c.ctx, c.claims, c.places)
	case "ListPlaces":
		for l, err := range b.Backend.ListPlaces(c.ctx, c.keys...) {
			if a.err = err; err == nil {
				a.listed = append(a.listed, l)
			}
		}
	}
	return a
}

// to makes another call of the same count in the right way.
func (b *wrong) to(c call, method string, n uint64) answer {
	c.method, c.N = method, n
	return b.right(c)
}

// state returns the window of a call.
func (b *wrong) state(c call) window.Window {
	w := b.to(c, "Peek", 0).Window
	w.Refused, w.RetryAfter = false, 0
	return w
}

// count returns which count a call is of.
func (c call) count() window.Take {
	l := limits.Identity(&c.Limit)
	l.Max, l.Burst = 0, 0
	return l.For(c.Key, 0)
}

// before returns the last window of a count that a call of this client has returned.
func (b *wrong) before(c call) window.Window {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[c.count()]
}

// counts returns what the calls of this client have returned of each count.
func (b *wrong) counts() map[window.Take]window.Window {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.last)
}

// another reports whether the limit of a call has another Max than the last call of its count.
func (b *wrong) another(c call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := c.count()
	was := b.max[of]
	b.max[of] = c.Limit.Max
	return was != 0 && was != c.Limit.Max && c.Limit.Max > 0 && b.last[of].ExpiresAt.After(b.now())
}

// uncounted returns what a hit would return that counts nothing.
func (b *wrong) uncounted(c call) answer {
	w := b.state(c)
	w.Count += c.N
	return answer{Window: w}
}

// clear gives back all that is counted in a fixed window.
func (b *wrong) clear(c call) {
	c.id = b.before(c).ID
	b.to(c, "GiveBack", b.state(c).Count)
}

// takeAll makes takes in the right way.
func (b *wrong) takeAll(all []call, windows []window.Window) bool {
	takes := make([]window.Take, len(all))
	for i, c := range all {
		takes[i] = c.Take
	}
	granted, err := b.Backend.TakeAll(all[0].ctx, takes, windows)
	return granted && err == nil
}

// pause lets others call, and reports whether they have changed something.
func (b *wrong) pause() bool {
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
func (b *wrong) do(c call) answer {
	a := b.mistake(b, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.method != "Peek" {
		b.calls++
	}
	if a.ID != 0 && c.method != "Peek" {
		b.last[c.count()] = a.Window
	}
	for i, w := range c.windows {
		b.last[call{Take: c.takes[i]}.count()] = w
	}
	return a
}

func (b *wrong) verb(ctx context.Context, method, key string, l window.Limit, n uint64) (window.Window, error) {
	a := b.do(call{method: method, ctx: ctx, Take: l.For(key, n)})
	return a.Window, a.err
}

func (b *wrong) Check(l window.Limit) (window.Traits, error) {
	a := b.do(call{method: "Check", ctx: context.Background(), Take: l.For("", 0)})
	return a.traits, a.err
}

func (b *wrong) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.verb(ctx, "Hit", key, l, n)
}

func (b *wrong) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.verb(ctx, "Take", key, l, n)
}

func (b *wrong) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.verb(ctx, "Charge", key, l, n)
}

func (b *wrong) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.verb(ctx, "Peek", key, l, n)
}

func (b *wrong) Set(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.verb(ctx, "Set", key, l, n)
}

func (b *wrong) Reset(ctx context.Context, key string, l window.Limit) error {
	_, err := b.verb(ctx, "Reset", key, l, 0)
	return err
}

func (b *wrong) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (bool, error) {
	a := b.do(call{method: "GiveBack", ctx: ctx, Take: l.For(key, n), id: id})
	return a.ok, a.err
}

func (b *wrong) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	a := b.do(call{method: "Delete", ctx: ctx, Take: window.Take{Key: key}, scales: scales})
	return a.n, a.err
}

func (b *wrong) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	a := b.do(call{method: "TakeAll", ctx: ctx, takes: takes, windows: windows})
	return a.ok, a.err
}

func (b *wrong) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	return b.do(call{method: "Exchange", ctx: ctx, claims: claims, places: places}).err
}

func (b *wrong) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	return func(yield func(window.ListedPlaces, error) bool) {
		a := b.do(call{method: "ListPlaces", ctx: ctx, keys: keys})
		for _, l := range a.listed {
			if !yield(l, nil) {
				return
			}
		}
		if a.err != nil {
			yield(window.ListedPlaces{}, a.err)
		}
	}
}
