package throttr

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	windows "github.com/throttr-go/throttr/window"
)

// ServerBackend keeps windows on Throttr servers, exactly, for any number of clients
// whose clocks differ by less than a scale. Make one with [Client.Backend]; its
// client's Close ends it. docs/rate-limiting.md says how it works and why.
//
// Limits and counts go up to the largest value less 64. The scale must be a whole
// number of a unit that fits a value, with room for a margin: 2 bytes do for whole
// milliseconds up to a minute, whole seconds up to 18 hours, and so on. What does not
// fit is a [*RangeError], which names the value size that would do.
type ServerBackend[T codec.Value] struct {
	client  *Client[T]
	now     func() time.Time
	options backendOptions
	lanes   laneTable[T]
	purgers []purger[T] // one for each server
	visits  sync.Pool   // of *visit

	ctx    context.Context // ends with the backend
	cancel context.CancelFunc

	mu     sync.RWMutex // guards the start of tasks against close
	closed atomic.Bool
	tasks  sync.WaitGroup

	// traced, if not nil, is told in which bucket's window each hit was decided.
	traced func(key string, bucket int64, count, limit uint64)
}

var _ Backend = (*ServerBackend[uint64])(nil)

// closePatience is how long the end of a backend may take to remove the records of windows
// that are over.
const closePatience = time.Second

// defaultMaxWindows is how many windows a backend remembers.
const defaultMaxWindows = 1 << 18

type backendOptions struct {
	now        func() time.Time
	maxWindows int
	algorithm  windows.Algorithm
	apart      bool          // no coalescing
	denials    time.Duration // 0: as the timing says
}

// BackendOption changes how [Client.Backend] works.
type BackendOption func(*backendOptions)

// WithClock has the backend read the time from now, which must be safe for concurrent
// use. Default: time.Now.
func WithClock(now func() time.Time) BackendOption {
	return func(o *backendOptions) { o.now = now }
}

// WithAlgorithm sets when windows open and end. Aligned windows end by the clock of each
// client; as clocks differ by less than a scale, their scale can be half as long as that of
// others. All clients must use the same. Default: per key.
func WithAlgorithm(a windows.Algorithm) BackendOption {
	return func(o *backendOptions) { o.algorithm = a }
}

// WithoutCoalescing has each hit make a request of its own. By default, hits on a window
// that come while a request for it is under way wait, and share the next one: a hot key then
// costs a server one request for many hits. Exactness is the same.
func WithoutCoalescing() BackendOption {
	return func(o *backendOptions) { o.apart = true }
}

// WithDenialMemory bounds for how long hits on a full window are denied without asking the
// server, and so how late a Set or Reset by another client is noticed: d after the server
// was last asked, and never beyond the window's end. Less than 0: every hit asks. Default, 0:
// a tenth of the scale, but at least 10 ms and at most 1 s.
func WithDenialMemory(d time.Duration) BackendOption {
	return func(o *backendOptions) { o.denials = d }
}

// denialMemory returns for how long a denial is remembered.
func (b *ServerBackend[T]) denialMemory(t timing) time.Duration {
	if b.options.denials != 0 {
		return b.options.denials
	}
	return t.recheck()
}

// WithMaxWindows bounds how many windows the backend remembers, and, four times as
// many, how many records it has yet to remove. Windows that are over are forgotten first, of
// a few picked at random. To forget a window costs a look at the server when its key is hit
// again. A window that would leave too many records to
// remove is not opened: the hit fails with [ErrOverloaded]. Default: 262144.
func WithMaxWindows(n int) BackendOption {
	return func(o *backendOptions) { o.maxWindows = n }
}

// Backend returns a [Backend] for [NewRateLimit] that keeps its windows on the
// client's servers.
func (c *Client[T]) Backend(opts ...BackendOption) *ServerBackend[T] {
	o := backendOptions{now: time.Now, maxWindows: defaultMaxWindows}
	for _, opt := range opts {
		opt(&o)
	}
	if o.maxWindows < 1 {
		o.maxWindows = defaultMaxWindows
	}
	o.maxWindows = min(o.maxWindows, math.MaxInt/8)
	b := &ServerBackend[T]{client: c, now: o.now, options: o}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.lanes.init(o.maxWindows)
	b.visits.New = func() any { return &visit{done: make(chan struct{}, 1)} }
	b.purgers = make([]purger[T], len(c.pools))
	for i := range b.purgers {
		b.purgers[i].init(b, (4*o.maxWindows+len(c.pools)-1)/len(c.pools))
	}
	if !c.adopt(b) {
		b.close()
		return b
	}
	for i := range b.purgers {
		b.start(func() {
			defer b.tasks.Done()
			b.purgers[i].run()
		})
	}
	return b
}

// Hit implements [Backend].
func (b *ServerBackend[T]) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (Window, error) {
	size := codec.Size[T]()
	if err := checkCount("limit", limit, size); err != nil {
		return Window{}, err
	}
	if err := checkIncrement(limit, increment, size); err != nil {
		return Window{}, err
	}
	return b.visit(ctx, key, scale, visit{task: hitTask, limit: limit, increment: increment})
}

// Inc implements [Backend].
func (b *ServerBackend[T]) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (Window, error) {
	if err := checkCount("increment", increment, codec.Size[T]()); err != nil {
		return Window{}, err
	}
	most := largestOf(codec.Size[T]()) - headroom
	return b.visit(ctx, key, scale, visit{task: incTask, limit: most, increment: increment})
}

// Set implements [Backend].
func (b *ServerBackend[T]) Set(ctx context.Context, key string, scale time.Duration, count uint64) (Window, error) {
	if err := checkCount("count", count, codec.Size[T]()); err != nil {
		return Window{}, err
	}
	return b.visit(ctx, key, scale, visit{task: setTask, increment: count})
}

// Reset implements [Backend].
func (b *ServerBackend[T]) Reset(ctx context.Context, key string, scale time.Duration) error {
	_, err := b.visit(ctx, key, scale, visit{task: resetTask})
	return err
}

// Get implements [Backend].
func (b *ServerBackend[T]) Get(ctx context.Context, key string, scale time.Duration) (Window, error) {
	l, err := b.lane(key, scale)
	if err != nil {
		return Window{}, err
	}
	return l.peek(ctx)
}

// checkIncrement refuses an increment that could wrap a counter that is within limit.
func checkIncrement(limit, increment uint64, size int) error {
	most := largestOf(size) - limit - headroom + 1
	if increment <= most {
		return nil
	}
	return &RangeError{
		Field: "increment", Value: fmt.Sprint(increment), Size: size,
		Bound: fmt.Sprintf("at most %d with a limit of %d", most, limit),
		Needs: neededFor(func(largest uint64) bool {
			return limit <= largest-headroom && increment <= largest-limit-headroom+1
		}),
	}
}

// lane returns the lane of a key and scale.
func (b *ServerBackend[T]) lane(key string, scale time.Duration) (*lane[T], error) {
	if l := b.lanes.find(laneKey{key, scale}); l != nil {
		return l, nil
	}
	t, ok := timingFor(b.options.algorithm, scale, uint64(^T(0)))
	if !ok {
		return nil, scaleError(b.options.algorithm, scale, codec.Size[T]())
	}
	return b.lanes.add(newLane(b, key, t)), nil
}

// start runs f in a goroutine, unless b is closed. Close waits until f has called
// b.tasks.Done.
func (b *ServerBackend[T]) start(f func()) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed.Load() {
		return false
	}
	b.tasks.Add(1)
	go f()
	return true
}

// close lets no more hits in, removes the records of windows that are over, fails the hits
// that are under way, and returns when nothing runs any more.
func (b *ServerBackend[T]) close() {
	b.mu.Lock()
	b.closed.Store(true)
	b.mu.Unlock()
	patience := time.AfterFunc(closePatience, b.cancel)
	defer patience.Stop()
	var last sync.WaitGroup
	for i := range b.purgers {
		last.Go(b.purgers[i].finish)
	}
	last.Wait()
	b.cancel()
	b.tasks.Wait()
}
