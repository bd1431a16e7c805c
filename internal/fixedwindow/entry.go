package fixedwindow

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
)

// entry is what a backend remembers of a key and scale. It is the [coalesce.Window] of its own
// coalescer.
type entry[T codec.Value] struct {
	backend   *Backend[T]
	server    Server[T]  // where the key lives
	reaper    *reaper[T] // of the server
	coalescer *coalesce.Coalescer

	key          string
	timing       timing
	denialMemory time.Duration
	prefix       string // of the names of the records
	suffix       string

	records []*record[T] // to be removed; guarded by the reaper's mutex

	// mu guards the fields below, which known.go is about. What is known changes only during
	// Refresh, Count and operations, which do not overlap. Get may replace the name at any time.
	mu         sync.Mutex
	known      bool // there is a known window
	state      state
	name       []byte // of the record in nameBucket; the slice is replaced, never written to
	nameBucket int64
}

func newEntry[T codec.Value](b *Backend[T], key string, t timing) *entry[T] {
	i := b.pick(key)
	e := &entry[T]{
		backend: b, server: b.servers[i], reaper: b.reapers[i],
		key: key, timing: t, denialMemory: b.denialMemory,
	}
	if e.denialMemory == 0 {
		e.denialMemory = t.denialMemory()
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
		// There is no window. The batch opens one.
	case !e.known || !b.Now.Before(s.latestEnd):
		return coalesce.Defer, coalesce.Result{}, nil
	case e.denies(h, b.Now):
		return coalesce.Decided, s.result(e.timing, s.count, b.Now), nil
	case b.Read && overflows(h, s.count):
		return coalesce.Decided, coalesce.Result{}, overflowError(h, s.count, codec.Size[T]())
	case !b.Read && e.outdated(h):
		return coalesce.Defer, coalesce.Result{}, nil
	case s.count > h.Limit:
		return coalesce.Decided, s.result(e.timing, s.count, b.Now), nil
	}
	if !fits(maxValue[T](), b, h) {
		return coalesce.Defer, coalesce.Result{}, nil
	}
	return coalesce.Join, coalesce.Result{}, nil
}

// Refresh implements [coalesce.Window]. It reads the record of the known window. If that is
// over, or if none is known, it looks for the window.
func (e *entry[T]) Refresh(ctx context.Context) error {
	now := e.backend.now()
	if old, name, ok := e.current(now); ok {
		o, _, err := e.increase(ctx, old.bucket, name, 0, now)
		if err != nil {
			return err
		}
		if o.matches(old, 0, e.timing) {
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

// Count implements [coalesce.Window]. It takes one round trip if the window is known.
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
	case o.wrapped:
		return e.repair(ctx, b, o)
	case !o.matches(old, b.Sum, e.timing):
		return e.resolve(ctx, o)
	}
	return e.counted(e.learn(o), o.count, o.to)
}

// repair is called when a batch has wrapped the counter of a window that is over the limit. This
// happens only if several clients add large increments at the same time, or if there are more than
// 64 clients. The counter is set to a value over the limit, and the hits of the batch are denied,
// or fail if they have to be counted.
func (e *entry[T]) repair(ctx context.Context, b coalesce.Batch, o observation) coalesce.Outcome {
	e.forget()
	cl := e.call(conn.Interruptible)
	e.addPatch(cl, o.bucket, min(b.Limit+1, maxCount[T]()))
	if _, err := e.do(ctx, cl); err != nil {
		return coalesce.Outcome{Err: err, Sent: true}
	}
	e.backend.calls.Put(cl)
	if b.Must {
		h := coalesce.Hit{Limit: maxCount[T](), Increment: b.Sum}
		return coalesce.Outcome{Err: overflowError(h, maxCount[T](), codec.Size[T]()), Sent: true}
	}
	return e.counted(o.state(e.timing), maxValue[T](), e.backend.now())
}

// resolve finds out whether a batch was counted. It was added to the record own, which is not
// that of the known window, but has the same name.
func (e *entry[T]) resolve(ctx context.Context, own observation) coalesce.Outcome {
	e.forget()
	around := e.timing.bucket(e.backend.now())
	live, err := e.observeLive(ctx, around)
	if err != nil {
		return coalesce.Outcome{Err: err, Sent: true}
	}
	rivals := slices.ContainsFunc(live, func(o observation) bool {
		return o.bucket == own.bucket || !o.openedAfter(own.to, e.timing)
	})
	if !rivals { // own was the window, and is over
		return e.counted(own.state(e.timing), own.count, e.backend.now())
	}
	return e.joinOldest(ctx, live, own, true, around)
}

// joinOldest makes the oldest of the live records the known window. If added is true, a batch
// was added to the record own. It is counted if that is the window.
func (e *entry[T]) joinOldest(ctx context.Context, live []observation, own observation, added bool, around int64) coalesce.Outcome {
	o, ok, err := e.agree(ctx, around, live)
	if err != nil {
		return coalesce.Outcome{Err: err, Sent: added}
	}
	if !ok {
		return coalesce.Outcome{}
	}
	s := e.learn(o)
	if added && o.bucket == own.bucket {
		return e.counted(s, own.count, e.backend.now())
	}
	return coalesce.Outcome{}
}

// counted returns the outcome of a batch that was counted in a window. The count is that after
// the batch.
func (e *entry[T]) counted(s state, count uint64, now time.Time) coalesce.Outcome {
	return coalesce.Outcome{Counted: true, Result: s.result(e.timing, count, now)}
}
