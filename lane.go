package throttr

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// task is what a visit wants.
type task uint8

const (
	hitTask   task = iota // add increment; over limit, it need not be counted
	incTask               // add increment; over limit, it must not be
	setTask               // open a window with increment in place of any
	resetTask             // end the window
)

// idleQueue is how many places a lane's queue keeps when nobody waits. A crowd may have
// made it grow.
const idleQueue = 64

// visit is one caller's stay in a lane.
type visit struct {
	task      task
	limit     uint64
	increment uint64

	done   chan struct{} // one element, once window and err are there; lives as long as the visit
	window Window
	err    error

	// Guarded by the lane's mutex.
	taken    bool // its increment may have reached the server
	gone     bool // its caller has left
	finished bool // its caller can have the answer
}

// lane is where the callers of one key and scale meet. At most one request for their
// window is under way at a time; those who come meanwhile wait, and the next request
// carries the sum of their increments, up to the share that a client may add at once.
// Each then gets its own place in the count. When a window is known to be full, they
// are turned away without a request.
//
// While there are visits to serve, one goroutine does so.
type lane[T codec.Value] struct {
	backend *ServerBackend[T]
	purger  *purger[T] // of its server
	key     string
	timing  timing
	prefix  string // of the names of its records
	suffix  string

	mu      sync.Mutex
	queue   fifo[*visit]
	serving bool
	known   bool   // window is of use
	window  window // the active one, as far as is known
	name    []byte // of the record in bucket named
	named   int64

	run    func() // what startServing starts, made once
	flight flight // the serving goroutine's own
	fresh  bool   // window has just been read; likewise
	// contested, if found, is the record that flight was counted in, and that may not be the
	// window; likewise
	contested sight

	owned []*ownedRecord[T] // guarded by the purger's mutex
}

func newLane[T codec.Value](b *ServerBackend[T], key string, t timing) *lane[T] {
	l := &lane[T]{backend: b, purger: &b.purgers[b.client.router.pick(key)], key: key, timing: t}
	l.prefix, l.suffix = recordName(key, t)
	return l
}

// laneUse tells what would be lost if a lane were forgotten.
type laneUse uint8

const (
	laneBlank laneUse = iota // nothing
	laneKnown                // its window, which would have to be looked for
	laneBusy                 // there are callers
)

func (l *lane[T]) use() laneUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.serving || l.queue.len() > 0:
		return laneBusy
	case l.known && l.backend.now().Before(l.window.endHi):
		return laneKnown
	}
	return laneBlank
}

// visit has a visit served and waits for it.
func (b *ServerBackend[T]) visit(ctx context.Context, key string, scale time.Duration, v visit) (Window, error) {
	if err := ctx.Err(); err != nil {
		return Window{}, b.refused(key, false, err)
	}
	if b.closed.Load() {
		return Window{}, b.refused(key, false, ErrClosed)
	}
	l, err := b.lane(key, scale)
	if err != nil {
		return Window{}, err
	}
	return l.enter(ctx, v)
}

// enter queues v, unless it can be answered at once, and waits for its answer.
func (l *lane[T]) enter(ctx context.Context, v visit) (Window, error) {
	b := l.backend
	now := b.now()
	l.mu.Lock()
	if v.task == hitTask && l.full(v.limit, now) {
		l.answer(&v, l.window.count, now)
		l.mu.Unlock()
		return v.window, nil
	}
	led := l.canLead(&v, now)
	if led {
		l.serving = true
		bucket := l.window.bucket
		name := l.nameOf(bucket)
		l.mu.Unlock()
		if l.lead(ctx, &v, bucket, name, now) {
			return v.window, v.err
		}
		l.mu.Lock()
	} else if l.queue.len() >= b.client.cfg.MaxWaiting {
		l.mu.Unlock()
		return Window{}, b.refused(l.key, false, ErrOverloaded)
	}
	w := b.visits.Get().(*visit)
	v.done = w.done
	*w = v
	if led && l.contested.found {
		l.flight = flight{visits: l.flight.visits[:0]}
		l.flight.add(w)
	} else {
		l.queue.push(w)
	}
	if led || !l.serving {
		l.startServing()
	}
	l.mu.Unlock()
	return l.wait(ctx, w)
}

// wait waits for v's answer, or for its caller to lose patience.
func (l *lane[T]) wait(ctx context.Context, v *visit) (Window, error) {
	select {
	case <-v.done:
		return l.backend.part(v)
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.finished {
		<-v.done
		return l.backend.part(v)
	}
	v.gone = true
	return Window{}, l.backend.refused(l.key, v.taken, ctx.Err())
}

// part returns the answer of a visit, which is put away for another.
func (b *ServerBackend[T]) part(v *visit) (Window, error) {
	w, err := v.window, v.err
	*v = visit{done: v.done}
	b.visits.Put(v)
	return w, err
}

// refused describes a visit without an answer.
func (b *ServerBackend[T]) refused(key string, sent bool, err error) error {
	p := b.client.pools[b.client.router.pick(key)]
	return &RequestError{Server: p.server, Op: codec.OpUpdate, Sent: sent, Err: err}
}

// full reports whether the window is known to be over limit, and to be active still.
func (l *lane[T]) full(limit uint64, now time.Time) bool {
	if !l.known || l.window.count <= limit || !now.Before(l.window.endLo) {
		return false
	}
	age := now.Sub(l.window.seen)
	return age >= 0 && age < l.backend.denialMemory(l.timing)
}

// flight is the visits that one request counts.
type flight struct {
	visits []*visit
	sum    uint64
	most   uint64 // the highest limit among them
}

// share is how much one request may add to a counter whose limit is most: if 64 clients
// do so at once, it does not wrap.
func share(largest, most uint64) uint64 { return max(1, (largest-most)/headroom) }

// takes reports whether v fits in beside the others. Alone, any visit fits.
func (f *flight) takes(v *visit, largest uint64) bool {
	fits := share(largest, max(f.most, v.limit))
	return len(f.visits) == 0 || f.sum <= fits && v.increment <= fits-f.sum
}

// takes reports whether v may share a request with the others of a flight.
func (l *lane[T]) takes(f *flight, v *visit) bool {
	if l.backend.options.apart && len(f.visits) > 0 {
		return false
	}
	return f.takes(v, uint64(^T(0)))
}

func (f *flight) add(v *visit) {
	v.taken = true
	f.visits = append(f.visits, v)
	f.sum += v.increment
	f.most = max(f.most, v.limit)
}

// move is what the serving goroutine does next.
type move uint8

const (
	moveRest  move = iota // nobody is left
	moveCount             // count a flight in the known window
	moveCheck             // read the known window
	moveFind              // look for the window, or open one
	moveTask              // a Set or Reset
)

// startServing starts a goroutine that serves those who are here or, if the backend is
// closed, turns them away. The mutex is held.
func (l *lane[T]) startServing() {
	if l.run == nil {
		l.run = func() {
			defer l.backend.tasks.Done()
			l.serve()
		}
	}
	if l.serving = l.backend.start(l.run); l.serving {
		return
	}
	l.turnAway()
	if l.contested.found {
		l.contested = sight{}
		l.fail(l.flight.visits[0], l.backend.refused(l.key, true, ErrClosed))
	}
}

// serve serves visits until there are none.
func (l *lane[T]) serve() {
	f := &l.flight
	for {
		if l.contested.found {
			l.contest(f)
		}
		if len(f.visits) > 1 {
			runtime.Gosched() // those who just had their answer may be back
		}
		switch m, v := l.next(f); m {
		case moveRest:
			return
		case moveCount:
			l.count(f)
		case moveCheck:
			l.check()
		case moveFind:
			l.find(f)
		case moveTask:
			l.perform(v)
		}
	}
}

// next answers the visits that need no request, in order, and returns the move for those
// that do.
func (l *lane[T]) next(f *flight) (move, *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*f = flight{visits: f.visits[:0]}
	if l.backend.ctx.Err() != nil {
		l.turnAway()
	}
	fresh := l.fresh
	l.fresh = false
	now := l.backend.now()
	if l.known && !now.Before(l.window.endHi) {
		l.known = false
	}
	for l.queue.len() > 0 {
		v := l.queue.at(0)
		switch {
		case v.gone:
			l.queue.pop()
		case v.task >= setTask:
			if len(f.visits) > 0 {
				return moveCount, nil
			}
			v.taken = true
			return moveTask, l.queue.pop()
		case !l.known:
			return moveFind, nil
		case v.task == hitTask && l.full(v.limit, now):
			l.answer(l.queue.pop(), l.window.count, now)
		case l.overflows(v) && fresh:
			l.fail(l.queue.pop(), overflow(v, l.window.count, codec.Size[T]()))
		case l.doubtful(v) && !fresh:
			if len(f.visits) > 0 {
				return moveCount, nil
			}
			return moveCheck, nil
		case l.window.count > v.limit:
			l.answer(l.queue.pop(), l.window.count, now)
		case !l.takes(f, v):
			return moveCount, nil
		default:
			f.add(l.queue.pop())
		}
	}
	if len(f.visits) > 0 {
		return moveCount, nil
	}
	l.serving = false
	if len(l.queue.ring) > idleQueue {
		l.queue, f.visits = fifo[*visit]{}, nil
	}
	return moveRest, nil
}

// doubtful reports whether the window must be read before v is decided: it may be full
// but may have ended, or v adds so much that what is known of the count is too old.
func (l *lane[T]) doubtful(v *visit) bool {
	return l.window.count > v.limit || v.increment > share(uint64(^T(0)), v.limit) || l.overflows(v)
}

// overflows reports whether v is an Inc that leads beyond the largest count.
func (l *lane[T]) overflows(v *visit) bool {
	return v.task == incTask && v.increment > v.limit-min(v.limit, l.window.count)
}

// overflow is why an Inc can't be counted.
func overflow(v *visit, count uint64, size int) error {
	return &RangeError{
		Field: "increment", Value: fmt.Sprint(v.increment), Size: size,
		Bound: fmt.Sprintf("counts up to %d, and it is %d already", v.limit, count),
		Needs: neededFor(func(largest uint64) bool {
			return count <= largest-headroom && v.increment <= largest-headroom-count
		}),
	}
}

// turnAway fails all visits: the backend is closed.
func (l *lane[T]) turnAway() {
	for l.queue.len() > 0 {
		l.fail(l.queue.pop(), l.backend.refused(l.key, false, ErrClosed))
	}
}

// answer ends a visit with a count. The lane's mutex is held.
func (l *lane[T]) answer(v *visit, count uint64, now time.Time) {
	v.window = l.window.result(l.timing, count, now)
	if l.backend.traced != nil {
		l.backend.traced(l.key, l.window.bucket, count, v.limit)
	}
	v.finish()
}

// fail ends a visit with an error. The lane's mutex is held.
func (l *lane[T]) fail(v *visit, err error) {
	v.err = err
	v.finish()
}

func (v *visit) finish() {
	v.finished = true
	if v.done != nil {
		v.done <- struct{}{}
	}
}

// settle gives each visit of a flight its place in the count, which was read right after
// their sum had been added.
func (l *lane[T]) settle(f *flight, count uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.backend.now()
	place := count - min(count, f.sum)
	for _, v := range f.visits {
		place += v.increment
		l.answer(v, place, now)
	}
}

// giveBack puts the visits of a flight back where they came from: they were not counted
// in the window that is active.
func (l *lane[T]) giveBack(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(f.visits) - 1; i >= 0; i-- {
		f.visits[i].taken = false
		l.queue.unshift(f.visits[i])
	}
}

// failFlight fails the visits of a flight.
func (l *lane[T]) failFlight(f *flight, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range f.visits {
		l.fail(v, err)
	}
}

// failAll fails all who wait for the window to be found, up to the next Set or Reset.
func (l *lane[T]) failAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.queue.len() > 0 && l.queue.at(0).task < setTask {
		l.fail(l.queue.pop(), err)
	}
}
