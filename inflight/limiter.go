package inflight

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// Limiter limits calls in flight. Make one with [New]. It is safe for concurrent use.
type Limiter struct {
	// Each key and name has a pump. Those that have something to tell the store are queued in their lane, where one or
	// two workers make their exchanges, many at a time. They end when nothing is queued. Each of the others has a timer
	// for what it has to do. So there is a bounded number of goroutines, whatever the number of holders and keys.

	options
	process string // as the store knows it
	start   time.Time
	store   *outage.Guard
	memory  *ledger.Ledger  // of the backend, if it is in the memory of this process
	ctx     context.Context // of exchanges, until the Limiter is closed and has no pumps
	cancel  context.CancelFunc

	mu     sync.Mutex // guards what follows, all pumps, and the states of Holds
	closed bool
	seq    uint64
	byID   map[id]*pump
	queues map[lane]*laneQueue // of lanes that have any
	later  []func()            // are called when the mutex is unlocked
	spare  sync.Pool           // pumps that are gone
	stats  Stats               // without what the pumps know

	dataSet   uint64        // of a store that is one part, when it was told last
	renewAt   time.Duration // no sooner are all pumps made to renew what they hold
	lossUntil time.Duration // until then, a loss of data is the last one
}

// New returns a Limiter on a backend that has exchanges: that of package memory, or on Redis, see [Limiter.Check]. Make
// one for each process and store, and close it at the end. It panics if the backend or an option is nil.
func New(b throttr.Backend, opts ...Option) *Limiter {
	if b == nil {
		panic("inflight: New: backend is nil")
	}
	host, _ := os.Hostname()
	l := &Limiter{
		// no other process has this name, and people know it
		process: fmt.Sprintf("%.32s:%d:%s", url.PathEscape(host), os.Getpid(), rand.Text()[:10]),
		start:   time.Now(), byID: map[id]*pump{}, queues: map[lane]*laneQueue{},
	}
	api.Apply("inflight: New", &l.options, opts)
	l.maxKeys = cmp.Or(l.maxKeys, DefaultMaxKeys)
	l.maxWaiting = cmp.Or(l.maxWaiting, DefaultMaxWaiting)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if opened, ok := b.(*throttr.OpenBackend); ok {
		b = opened.BackendCloser
	}
	l.store = outage.New(b, outage.Options{
		Settings: l.outages,
		Watch: &outage.Watch{
			Backend: b, Logger: l.outages.Logger, DecidesMeanwhile: l.policy.String(), Text: outage.WithoutKey,
			Observed: l.observeOutage,
		},
		NotMade: func(_, _ string, cause error) error { return notAsked{outage.CauseOf(cause)} },
	})
	if local, ok := b.(*memory.Backend); ok { // and not a wrapper, which may have an Exchange of its own
		l.memory = local.Ledger()
	}
	return l
}

// now returns the monotonic time, which is positive.
func (l *Limiter) now() time.Duration { return time.Since(l.start) + 1 }

// Check returns an error if a limit is invalid, or the backend keeps no places in flight. Every call would return it,
// so check limits when the program starts. It matches throttr.ErrRange or throttr.ErrUnsupported. Check asks no store.
func (l *Limiter) Check(limits ...Limit) error {
	for _, limit := range limits {
		if err := limit.check(1); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that no store is asked
	err := l.store.Backend.Exchange(ctx, nil, nil)
	if errors.Is(err, window.ErrUnsupported) {
		return fmt.Errorf("inflight: the backend keeps no places in flight: %w", err)
	}
	return nil
}

// TryAcquire acquires n places of a key if there is room, and nobody waits for it. With ok, the caller releases the
// Hold. Without ok there is no place, or n is more than the Max. An error says that there is no decision: it matches
// throttr.ErrRange or throttr.ErrUnsupported, which are mistakes, the error of ctx, or throttr.ErrUnavailable,
// ErrFull, ErrOverloaded or ErrClosed.
func (l *Limiter) TryAcquire(ctx context.Context, key string, limit Limit, n uint64) (h *Hold, ok bool, err error) {
	h, err = l.acquire(ctx, "try", key, limit, window.Want{N: n, Max: limit.Max})
	return h, h != nil, err
}

// Acquire acquires n places of a key, and waits for them in line: in a process first come, first served, and
// a large n is not overtaken for ever. The caller releases the Hold. If n is more than the Max, the error is a
// [*throttr.CostError]. Others are those of TryAcquire. If ctx ends, nothing is held.
func (l *Limiter) Acquire(ctx context.Context, key string, limit Limit, n uint64) (*Hold, error) {
	return l.acquire(ctx, "acquire", key, limit, window.Want{N: n, Max: limit.Max, Wait: true})
}

// acquire acquires. It returns nil if there is no place.
func (l *Limiter) acquire(ctx context.Context, call, key string, limit Limit, w window.Want) (h *Hold, err error) {
	if err := limit.check(w.N); err != nil {
		return nil, &api.CallError{Package: "inflight", Call: call, Key: key, Err: err}
	}
	if w.N > w.Max && w.Wait {
		return nil, &throttr.CostError{Key: key, Limit: limit.asLimit(), N: w.N}
	}
	h = &Hold{limiter: l, ctx: ctx, key: key, limit: limit, want: w}
	begun := l.now()
	panics := true
	defer func() { // nobody has the Hold then, and it holds nothing
		if panics && h.pump != nil {
			l.release(h)
		}
	}()
	err = l.grant(h)
	if l.observer != nil {
		l.decided(h, l.now()-begun, err)
	}
	panics = false
	switch {
	case err == errNoPlace:
		return nil, nil
	case err != nil:
		return nil, &api.CallError{Package: "inflight", Call: call, Key: key, Err: err}
	}
	return h, nil
}

// grant has a Hold hold what it wants, or returns why it does not.
func (l *Limiter) grant(h *Hold) error {
	if err := h.ctx.Err(); err != nil {
		return err
	}
	if h.want.N > h.want.Max {
		return errNoPlace
	}
	decided, err := l.submit(h)
	if decided != nil {
		select {
		case <-decided:
			err = h.err
		case <-h.ctx.Done():
			l.release(h)
			return h.ctx.Err()
		}
	}
	switch {
	case h.byPolicy:
		l.store.Watch.Decided(err == nil, nil)
	case err != nil && outage.IsAway(err) && !errors.As(err, new(*NotYetError)): // a store that says "not yet" is there
		l.store.Watch.Failed(nil) // it is left to the caller
	}
	return err
}

// submit has a pump decide what a Hold wants. It returns a channel that is closed when that is decided, or the
// decision.
func (l *Limiter) submit(h *Hold) (decided <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.unlock()
	k := id{h.key, h.limit.Name}
	p := l.byID[k]
	switch {
	case l.closed:
		return nil, window.ErrClosed
	case l.stats.Waiting >= l.maxWaiting:
		return nil, window.ErrOverloaded
	case p == nil && l.memory == nil && len(l.byID) >= l.maxKeys:
		return nil, window.ErrFull
	case p == nil:
		p = l.newPump(k, h.limit.Lease)
	}
	h.pump = p
	p.add(h)
	l.update(p, l.now())
	if h.undecided() {
		h.ready = make(chan struct{})
		l.stats.Waiting++
	}
	return h.ready, h.err
}

// release gives back what a Hold holds, or ends its wait.
func (l *Limiter) release(h *Hold) { l.do(h.pump, func() { h.pump.cancel(h) }) }

// do does something with a pump, and updates it.
func (l *Limiter) do(p *pump, f func()) {
	l.mu.Lock()
	defer l.unlock()
	f()
	l.update(p, l.now())
}

// unlock unlocks the mutex, and does what is to be done then: all of it, also if an observer panics. A Limiter that is
// closed has no more exchanges when its last pump is gone.
func (l *Limiter) unlock() {
	if l.closed && len(l.byID) == 0 {
		l.cancel()
	}
	later := l.later
	l.later = nil
	l.mu.Unlock()
	for i := len(later) - 1; i >= 0; i-- { // not slices.Backward: a defer in its loop allocates
		defer later[i]()
	}
}

// State is the places of a key and name.
type State struct {
	InUse   uint64 // by all processes
	Free    uint64 // of the Max
	Waiting uint64 // calls that wait in line, as far as the store knows
}

// Peek returns the places of a key, and changes nothing. Its errors are those of TryAcquire.
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit) (State, error) {
	places := make([]window.Places, 1)
	err := limit.check(1)
	if err == nil && l.ctx.Err() != nil {
		err = window.ErrClosed
	}
	if err == nil {
		err = l.store.Exchange(ctx, []window.Claim{{Key: key, Name: limit.Name}}, places)
	}
	p := places[0]
	if err := cmp.Or(err, p.Err); err != nil {
		return State{}, &api.CallError{Package: "inflight", Call: "peek", Key: key, Err: err}
	}
	return State{InUse: p.Used, Free: limit.Max - min(p.Used, limit.Max), Waiting: p.Waiting}, nil
}

// Close releases all places, and ends all waits: their errors match throttr.ErrClosed, as those of further calls. It
// tells the store, and retries for up to a second while the circuit is closed. The lease frees the places of which the
// store is not told. It does not close the backend. It always returns nil. A further call does nothing, also while the
// first tells the store.
func (l *Limiter) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		for _, p := range l.byID {
			p.close()
		}
		defer l.tellAll()
	}
	l.unlock() // holders know before others can have their places
	return nil
}

// tellAll tells the store what has ended with the Limiter, and forgets all pumps.
func (l *Limiter) tellAll() {
	l.mu.Lock()
	for _, p := range l.byID {
		l.update(p, l.now())
	}
	l.unlock()
	defer time.AfterFunc(closeTimeout, l.cancel).Stop()
	<-l.ctx.Done()
	l.mu.Lock()
	defer l.unlock()
	for _, p := range l.byID {
		l.forget(p)
	}
}

// Stats is what a Limiter holds.
type Stats struct {
	InUse   uint64 // places that this process holds
	Waiting int    // calls of this process that wait for a place
	Keys    int    // with places that are held or wanted, or of which the store is still told
	Lost    uint64 // places that were lost since New
	Losses  uint64 // how often since New the store had lost its data, or with WithStrict may have
}

// Stats returns what the Limiter holds.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Keys = len(l.byID)
	for _, p := range l.byID {
		s.InUse += p.held + p.apart + p.unlimited
	}
	return s
}

// DefaultLease is the default of [Limit.Lease].
const DefaultLease = 30 * time.Second

// Limit is a rule: at most Max at a time. It has no key: one Limit is for any number of keys. Places belong to
// the key and the Name, and not to Max: if that is lowered, nobody loses a place.
type Limit struct {
	Name string // tells limits of one key apart: at most 64 printable ASCII characters
	Max  uint64 // how many places there are, up to [window.MaxPlaces]; or [window.Unlimited]
	// Lease is how long the places of a process stay held after the store has heard of it last. A short one
	// lets others have the places of a crashed process soon, and a long one outlasts outages of the store. All
	// processes must use the same for a Name. From [window.MinLease] to [window.MaxLease]. Default:
	// [DefaultLease].
	Lease time.Duration
}

// String formats the limit: "exports: 20 at a time".
func (l Limit) String() string { return l.asLimit().String() }

// asLimit returns the limit for errors.
func (l Limit) asLimit() window.Limit { return window.Limit{Name: l.Name, Max: l.Max} }

// check sets the defaults, and returns why the limit or n can't be kept.
func (l *Limit) check(n uint64) error {
	l.Lease = cmp.Or(l.Lease, DefaultLease)
	if err := limits.CheckPlaces(l.Name, l.Max, l.Lease); err != nil {
		return err
	}
	if n == 0 || n > window.Unlimited {
		return &window.RangeError{Field: "N", Value: fmt.Sprint(n),
			Bound: fmt.Sprintf("from 1 to the Max, %d", l.Max)}
	}
	return nil
}
