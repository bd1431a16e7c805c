package fixedwindow

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

const (
	// closeWait is how long Close waits for windows to be over.
	closeWait = time.Second
	// closeTimeout is how long Close may take after that to remove the records of windows that
	// are over. It takes up to twice [slot.MaxGuard], and longer if there are many records.
	closeTimeout = 18 * time.Second
	// closeStall is how long Close waits for a response.
	closeStall = 1500 * time.Millisecond
)

// Server executes calls, and can be swept. A *pool.Pool is one.
type Server interface {
	sweep.Server
	// Err returns why there is no connection, if calls fail for that.
	Err() error
	// Dedicated makes a connection for calls that rest on the responses to earlier ones.
	Dedicated(ctx context.Context) (*conn.Conn, error)
	// AddParking and RemoveParking are called before a call is sent on a dedicated connection,
	// and after it has succeeded.
	AddParking(cl *conn.Call)
	RemoveParking(cl *conn.Call)
}

// Options are the settings of a Backend. All but DenialMemory must be set.
type Options struct {
	Servers []Server
	Names   []string             // of the servers: TakeAll asks them in the order of their names
	Pick    func(key string) int // the index of the server where a key lives
	Calls   *conn.Calls

	MaxWindows int // windows that are remembered, beside four times as many keys whose records are to be removed
	MaxQueued  int // hits that wait for a request, for each window, and requests, for each connection

	MaxInFlight int // requests in flight, for each connection; 0: sweeps are not bounded by it

	// DenialMemory is how long a denial is remembered. 0 means a tenth of the scale, but at
	// least 10 ms and at most 1 s. Less than 0 means that every hit asks the server.
	DenialMemory time.Duration
}

// Backend keeps windows on servers. Its methods are those of [window.Backend], except that they
// also return sent: if err is not nil, sent reports whether what was asked for may have been
// done, in part or in whole.
//
// Errors are those of Check, or match [window.ErrRange], [window.ErrClosed], [window.ErrOverloaded], or
// [window.ErrFull] if as many records are yet to be removed as Options.MaxWindows allows; or they are those
// of ctx or a Server.
type Backend struct {
	Options
	group    group
	callers  sync.Pool // of *caller
	table    table
	links    []links       // those of each server
	janitors []*janitor    // one for each server
	ids      atomic.Int64  // the last ID of a window
	answered atomic.Uint64 // calls of links that have their responses
	closing  sync.Once
}

// New returns a backend and starts its goroutines. Close it after use.
func New(o Options) *Backend {
	b := newBackend(o)
	for _, j := range b.janitors {
		b.group.start(func() { j.sweeper.Run(b.group.ctx) })
	}
	return b
}

// newBackend is New, but leaves the records of clients that have died: its sweepers do not run.
func newBackend(o Options) *Backend {
	b := &Backend{Options: o}
	b.callers.New = newCaller
	b.group.ctx, b.group.cancel = context.WithCancel(context.Background())
	b.table.init(o.MaxWindows)
	keys := (4*o.MaxWindows + len(o.Servers) - 1) / len(o.Servers)
	for _, s := range o.Servers {
		var l links
		for i := range l {
			l[i] = newLink(s, o.Calls, &b.answered)
		}
		j := newJanitor(b, l[linkClasses], keys)
		b.links, b.janitors = append(b.links, l), append(b.janitors, j)
		b.group.start(j.run)
	}
	return b
}

// denialMemoryOf returns for how long denials are remembered in windows of a scale, and so how late
// a Set or Reset by another client takes effect.
func (b *Backend) denialMemoryOf(scale time.Duration) time.Duration {
	if b.DenialMemory != 0 {
		return b.DenialMemory
	}
	return min(max(scale/10, 10*time.Millisecond), time.Second)
}

// Hit adds n to the active window, or opens one. If the window is known to be over the limit, the hit need
// not be counted. If its counter can't hold n, the Window is Refused.
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit,
	n uint64) (w window.Window, sent bool, err error) {
	return b.countFor(ctx, key, &l, hit{max: l.Max, n: n})
}

// Charge adds n to the active window, or opens one. A count that would pass the largest stays there.
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit,
	n uint64) (w window.Window, sent bool, err error) {
	if err := limits.CheckNumber("N", n); err != nil {
		return w, false, err
	}
	return b.countFor(ctx, key, &l, hit{n: n, charge: true})
}

// countFor has a hit counted or decided in the windows of a key and limit.
func (b *Backend) countFor(ctx context.Context, key string, l *window.Limit,
	h hit) (w window.Window, sent bool, err error) {
	n := h.n // which a value must hold
	if h.charge {
		n = 0 // any n can be charged
	}
	s, err := b.stateFor(ctx, key, l, n)
	if err != nil {
		return w, false, err
	}
	if h.charge {
		h.max = s.bands.Largest
		h.n = min(h.n, h.max)
	}
	a := s.countHit(ctx, h)
	if a.window.Refused {
		refuse(&a.window, l, h.n)
	}
	return bounded(a.window), a.sent, a.err
}

// Set opens a window with count n in place of the active one.
func (b *Backend) Set(ctx context.Context, key string, l window.Limit,
	n uint64) (w window.Window, sent bool, err error) {
	s, err := b.stateFor(ctx, key, &l, n)
	if err != nil {
		return w, false, err
	}
	a := s.operate(ctx, func(ctx context.Context) answer { return s.set(ctx, n) })
	return bounded(a.window), a.sent, a.err
}

// Reset ends the active window, if there is one.
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) (sent bool, err error) {
	a := b.reset(ctx, key, &l)
	return a.sent, a.err
}

// Delete ends the active windows of a key and returns how many there were: those that the backend
// remembers, or, if scales are given, those of these scales that it remembers or that have no name.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, sent bool, err error) {
	counts, err := b.countsOf(ctx, key, scales)
	if err != nil {
		return 0, false, err
	}
	if err := b.group.check(ctx); err != nil {
		return 0, false, err
	}
	var mu sync.Mutex // guards the results
	var resets sync.WaitGroup
	for _, count := range counts { // at the same time, as each of them takes a while
		resets.Go(func() {
			l := count.limit()
			a := b.reset(ctx, key, &l)
			mu.Lock()
			defer mu.Unlock()
			if a.made && a.err == nil {
				n++
			}
			if err == nil && a.err != nil {
				sent, err = a.sent, a.err
			}
		})
	}
	resets.Wait()
	return n, sent, err
}

// countsOf returns what Delete ends.
func (b *Backend) countsOf(ctx context.Context, key string, scales []time.Duration) ([]countKey, error) {
	counts := b.table.of(key)
	if len(scales) == 0 {
		_, err := b.largest(ctx, key) // there may never have been a server
		return counts, err
	}
	counts = slices.DeleteFunc(counts, func(count countKey) bool { return !slices.Contains(scales, count.scale) })
	for _, scale := range scales {
		if err := limits.CheckScale(scale); err != nil {
			return nil, err
		}
	}
	for _, scale := range scales {
		count := countKey{key: key, scale: scale}
		l := count.limit()
		if _, err := b.bandsFor(ctx, key, &l, 0); err != nil {
			return nil, err
		}
		if !slices.Contains(counts, count) {
			counts = append(counts, count)
		}
	}
	return counts, nil
}

// reset ends the active window. It was made if there was one.
func (b *Backend) reset(ctx context.Context, key string, l *window.Limit) answer {
	s, err := b.stateFor(ctx, key, l, 0)
	if err != nil {
		return answer{err: err}
	}
	return s.operate(ctx, s.reset)
}

// Close makes further calls fail, and removes the records of windows that are over. On servers that
// are not parked, it first waits for windows that are over within a second. The records of other
// windows stay, because other clients may count in them. Close then fails what is under way, and
// waits until all goroutines of the backend have ended. It may be called more than once.
func (b *Backend) Close() {
	b.closing.Do(func() {
		b.group.stop()
		b.awaitEnds()
		go b.limitClosing()
		var last sync.WaitGroup
		for _, j := range b.janitors {
			last.Go(j.close)
		}
		last.Wait()
		b.group.close()
		for _, ls := range b.links {
			for _, l := range ls {
				last.Go(l.close)
			}
		}
		last.Wait()
	})
}

// limitClosing ends the backend's context if Close takes too long, or if no server responds.
func (b *Backend) limitClosing() {
	defer b.group.cancel()
	for range closeTimeout / closeStall {
		before := b.answered.Load()
		if outage.Sleep(b.group.ctx, closeStall) != nil || b.answered.Load() == before {
			return
		}
	}
}

// awaitEnds waits for the windows that are over within closeWait, so that their records can be
// removed before they expire. On a parked server they do not expire: sweepers remove them.
func (b *Backend) awaitEnds() {
	now := time.Now()
	var wait time.Duration
	for _, j := range b.janitors {
		if j.link.server.Parked() {
			continue // no record expires
		}
		wait = max(wait, j.last(now.Add(closeWait)).Sub(now))
	}
	_ = outage.Sleep(b.group.ctx, wait)
}

// stateFor returns the state of the count of a key and limit, or the error that the limit, or the n of a call, has on
// the servers. It adds the state to the table, unless the call must not do anything.
func (b *Backend) stateFor(ctx context.Context, key string, l *window.Limit, n uint64) (*countState, error) {
	s, inTable, err := b.find(ctx, key, l, n)
	if inTable || err != nil {
		return s, err
	}
	if err := b.group.check(ctx); err != nil {
		return nil, err
	}
	return b.table.add(s), nil
}

// find is stateFor, but adds nothing to the table. InTable says that it has the state.
func (b *Backend) find(ctx context.Context, key string, l *window.Limit,
	n uint64) (s *countState, inTable bool, err error) {
	bands, err := b.bandsFor(ctx, key, l, n)
	if err != nil {
		return nil, false, err
	}
	count := keyOf(key, l)
	if s := b.table.find(count); s != nil {
		return s, true, nil
	}
	return newState(b, bands, count), false, nil
}

// bandsFor returns the bands of a limit, once the limit and the n of a call for a key are known to be right.
func (b *Backend) bandsFor(ctx context.Context, key string, l *window.Limit, n uint64) (slot.Bands, error) {
	if err := check(l, n); err != nil {
		return slot.Bands{}, err
	}
	largest, err := b.largest(ctx, key)
	if err != nil {
		return slot.Bands{}, err
	}
	return fit(largest, l, n)
}

// bounded returns a window with a count of at most [window.Unlimited].
func bounded(w window.Window) window.Window {
	w.Count = min(w.Count, window.Unlimited)
	return w
}

// refuse makes w the window of a take or hit of n that was refused.
func refuse(w *window.Window, l *window.Limit, n uint64) {
	w.Refused = true
	w.RetryAfter = max(w.Left, 1)
	if n > l.Max {
		w.RetryAfter = window.Never
	}
}

// Stats is what a Backend remembers and has done.
type Stats struct {
	Windows     int // counts that are remembered, whose windows may be over
	Records     int // counts whose records are yet to be removed
	sweep.Stats     // of all servers
}

// Stats returns what the backend remembers and has done.
func (b *Backend) Stats() Stats {
	s := Stats{Windows: b.table.len()}
	for _, j := range b.janitors {
		s.Records += j.pending()
		swept := j.sweeper.Stats()
		s.Sweeps += swept.Sweeps
		s.Removed += swept.Removed
		s.Foreign += swept.Foreign
	}
	return s
}

// group is the goroutines of a backend.
type group struct {
	ctx    context.Context // ends with the group
	cancel context.CancelFunc

	// mu orders start and stop: no goroutine is added after stopped is set. stop holds it for writing, start for
	// reading. check reads stopped without it.
	mu         sync.RWMutex
	stopped    atomic.Bool
	goroutines sync.WaitGroup
}

// check returns the error of a call that must not do anything: ctx's error if ctx has ended, and
// [window.ErrClosed] if the group has been stopped. Otherwise it returns nil.
func (g *group) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.stopped.Load() {
		return window.ErrClosed
	}
	return nil
}

// start runs f in a goroutine that close waits for. It returns false, and does not run f, if the group has been
// stopped.
func (g *group) start(f func()) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.stopped.Load() {
		return false
	}
	g.goroutines.Go(f)
	return true
}

// stop makes further hits and operations fail with [window.ErrClosed]. Those that are queued are still served,
// unless they wait for the request of a caller: they fail after that request.
func (g *group) stop() {
	g.mu.Lock()
	g.stopped.Store(true)
	g.mu.Unlock()
}

// close ends the context of the group, which has been stopped, and waits until all goroutines have ended. What is
// queued or under way fails with [window.ErrClosed], except for requests with the ctx of a caller, which go on.
func (g *group) close() {
	g.cancel()
	g.goroutines.Wait()
}
