package fixedwindow

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
)

// entry is what a backend remembers of a key and scale: its server, the coalescer of its
// hits, and its active window. To the coalescer it is that window.
type entry[T codec.Value] struct {
	backend   *Backend[T]
	server    Server[T]  // on which the key lives
	reaper    *reaper[T] // of the server
	coalescer *coalesce.Coalescer
	key       string
	timing    timing
	denials   time.Duration // how long a denial is remembered
	prefix    string        // of the names of its records
	suffix    string

	records []*record[T] // that are to be removed; guarded by the reaper's mutex

	// mu guards what follows. Admit reads it at any time; only the methods that the
	// coalescer does not let overlap change it.
	mu     sync.Mutex
	known  bool // state is of use
	state  state
	name   []byte // of the record in bucket nameOf
	nameOf int64
}

func newEntry[T codec.Value](b *Backend[T], key string, t timing) *entry[T] {
	i := b.pick(key)
	e := &entry[T]{backend: b, server: b.servers[i], reaper: b.reapers[i], key: key, timing: t}
	if e.denials = b.denials; e.denials == 0 {
		e.denials = t.denialMemory()
	}
	e.prefix, e.suffix = recordName(key, t)
	e.coalescer = b.group.New(e)
	return e
}

// Admit implements [coalesce.Window].
func (e *entry[T]) Admit(b coalesce.Batch, h coalesce.Hit) (coalesce.Verdict, coalesce.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.state
	switch {
	case !e.known && b.Fresh:
		// There is no window: the batch opens one.
	case !e.known || !b.Now.Before(s.latestEnd):
		return coalesce.Wait, coalesce.Result{}, nil
	case e.denies(h, b.Now):
		return coalesce.Decided, s.result(e.timing, s.count, b.Now), nil
	case b.Fresh && overflows(h, s.count):
		return coalesce.Decided, coalesce.Result{}, overflowError(h, s.count, codec.Size[T]())
	case !b.Fresh && e.doubtful(h):
		return coalesce.Wait, coalesce.Result{}, nil
	case s.count > h.Limit:
		return coalesce.Decided, s.result(e.timing, s.count, b.Now), nil
	}
	if !fits(maxValue[T](), b, h) {
		return coalesce.Wait, coalesce.Result{}, nil
	}
	return coalesce.Join, coalesce.Result{}, nil
}

// denies reports whether h can be denied from memory: the window was over the limit when it
// was last read, this is not long ago, and it has certainly not ended since. The window must
// be known.
func (e *entry[T]) denies(h coalesce.Hit, now time.Time) bool {
	s := &e.state
	if h.Must || s.count <= h.Limit || !now.Before(s.earliestEnd) {
		return false
	}
	age := now.Sub(s.seen)
	return age >= 0 && age < e.denials
}

// doubtful reports whether the window must be read before h is decided. It may be full but
// may have ended, or h adds so much that its last known count is too old.
func (e *entry[T]) doubtful(h coalesce.Hit) bool {
	return e.state.count > h.Limit || h.Increment > share(maxValue[T](), h.Limit) || overflows(h, e.state.count)
}

// Refresh implements [coalesce.Window]. It reads the known window, or looks for one.
func (e *entry[T]) Refresh(ctx context.Context) error {
	now := e.backend.now()
	if old, name, ok := e.current(now); ok {
		o, _, err := e.increase(ctx, old.bucket, name, 0, now)
		if err != nil {
			return err
		}
		if e.matches(o, old) {
			e.learn(o)
			return nil
		}
	}
	e.forget()
	o, ok, err := e.lookup(ctx)
	if ok {
		e.learn(o)
	}
	return err
}

// Count implements [coalesce.Window]. In a known window it takes one round trip.
func (e *entry[T]) Count(ctx context.Context, b coalesce.Batch) coalesce.Outcome {
	e.mu.Lock()
	if !e.known {
		e.mu.Unlock()
		return e.open(ctx, b)
	}
	old, name := e.state, e.currentName()
	e.mu.Unlock()
	o, sent, err := e.increase(ctx, old.bucket, name, b.Sum, b.Now)
	switch {
	case err != nil:
		return coalesce.Outcome{Err: err, Sent: sent}
	case !o.live(e.timing):
		e.forget()
		return coalesce.Outcome{}
	case !e.matches(o, old):
		return e.resolve(ctx, o)
	}
	return e.counted(e.learn(o), o.count, o.to)
}

// resolve follows a count in a record that turned out to be of another window. If that is
// not the key's window, the batch has yet to be counted.
func (e *entry[T]) resolve(ctx context.Context, own observation) coalesce.Outcome {
	e.forget()
	around := e.timing.bucket(e.backend.now())
	live, err := e.observeLive(ctx, around)
	if err != nil {
		return coalesce.Outcome{Err: err, Sent: true}
	}
	if !slices.ContainsFunc(live, func(o observation) bool { return o.bucket == own.bucket || !o.openedAfter(own.to, e.timing) }) {
		// It was the window, and has ended since.
		return e.counted(own.state(e.timing), own.count, e.backend.now())
	}
	return e.elect(ctx, live, own, true, around)
}

// elect looks for the window among records that are live. A batch that was counted in own is
// counted if that is the window.
func (e *entry[T]) elect(ctx context.Context, live []observation, own observation, counted bool, around int64) coalesce.Outcome {
	o, ok, err := e.agree(ctx, around, live)
	if err != nil {
		return coalesce.Outcome{Err: err, Sent: counted}
	}
	if !ok {
		return coalesce.Outcome{}
	}
	s := e.learn(o)
	if counted && o.bucket == own.bucket {
		return e.counted(s, own.count, e.backend.now())
	}
	return coalesce.Outcome{}
}

// matches reports whether o is live and can be the known window. Another record of the same
// name need not be the key's window: another client may be about to remove it, as the younger
// of two.
func (e *entry[T]) matches(o observation, known state) bool {
	if !o.live(e.timing) {
		return false
	}
	s := o.state(e.timing)
	return s.narrow(known)
}

// learn takes over what a live record shows, and returns what is known then.
func (e *entry[T]) learn(o observation) state {
	s := o.state(e.timing)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known && e.state.bucket == s.bucket {
		s.narrow(e.state)
	}
	e.state, e.known = s, true
	return s
}

// learnOpened takes over a window that was opened.
func (e *entry[T]) learnOpened(s state) {
	e.mu.Lock()
	e.state, e.known = s, true
	e.mu.Unlock()
}

// forget is called when the known window turns out to be over or another one.
func (e *entry[T]) forget() {
	e.mu.Lock()
	e.known = false
	e.mu.Unlock()
}

// active reports whether a window is known that need not be over.
func (e *entry[T]) active(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known && now.Before(e.state.latestEnd)
}

// current returns the known window and the name of its record. It returns false if none is
// known, or if it is over.
func (e *entry[T]) current(now time.Time) (s state, name []byte, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known || !now.Before(e.state.latestEnd) {
		return state{}, nil, false
	}
	return e.state, e.currentName(), true
}

// currentName returns the name of the known window's record, which is not changed later. The
// caller holds mu.
func (e *entry[T]) currentName() []byte {
	if e.nameOf != e.state.bucket || e.name == nil {
		e.name, e.nameOf = e.appendName(nil, e.state.bucket), e.state.bucket
	}
	return e.name
}

// counted returns the outcome of a batch that was counted in a window, whose count was then
// as given.
func (e *entry[T]) counted(s state, count uint64, now time.Time) coalesce.Outcome {
	return coalesce.Outcome{Counted: true, Result: s.result(e.timing, count, now)}
}
