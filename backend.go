package throttr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/realclock"
	"github.com/throttr-go/throttr/window"
)

// ServerBackend is a [Backend] that keeps windows on Throttr servers, exactly, for any number
// of clients. Make one per client, with [Client.Backend], and keep it: the hits of one backend
// share requests, those of two do not. docs/rate-limiting.md says how it works, and on which
// conditions it is exact.
//
// Each backend has some connections of its own to each server, for opening windows. A server must
// respond within a quarter of the scale, and within 500 ms, for a window to be opened. Set, and
// Reset and Delete of an open window, take half a scale, and at most 1 s. The clocks of clients and
// servers need not agree, except for aligned windows (see [WithAlgorithm]).
//
// Limits, increments and counts go up to the largest value. The scale must be a whole number of a
// unit (1 ns to 1 h) in which about twice the scale and 45 s fit a value: 2 bytes do for whole
// milliseconds up to 10 s, whole seconds up to 9 hours, and so on; 1 byte does for no scale
// under a second. Any other scale or number is a [*RangeError], which names the value size that
// would do.
//
// All other errors but [ErrScale] and [errors.ErrUnsupported] are a [*RequestError], which says whether the hit may have
// been counted.
type ServerBackend[T codec.Value] struct {
	client      *Client[T]
	windows     *fixedwindow.Backend[T]
	forgetClock func() // the backend does not read the real clock any more
	closing     atomic.Bool
	ended       chan struct{} // closed when Close is done
}

var (
	_ Backend        = (*ServerBackend[uint64])(nil)
	_ window.Checker = (*ServerBackend[uint64])(nil)
	_ window.Peeker  = (*ServerBackend[uint64])(nil)
)

// defaultMaxWindows is how many windows a backend remembers.
const defaultMaxWindows = 1 << 18

type backendOptions struct {
	now               func() time.Time
	algorithm         window.Algorithm
	maxWindows        int
	denialMemory      time.Duration
	withoutCoalescing bool
}

// BackendOption changes how [Client.Backend] works.
type BackendOption func(*backendOptions)

// WithClock sets the clock of the backend, which must be safe for concurrent use. The ends of
// windows that the backend returns are times of this clock, and aligned windows start and end by
// it. It does not change when other windows end. It must not stand still while the clocks of the
// servers move, and must be finer than 20 ms. Default: time.Now. WithClock panics if now is
// nil.
func WithClock(now func() time.Time) BackendOption {
	if now == nil {
		panic("throttr: WithClock: now is nil")
	}
	return func(o *backendOptions) { o.now = now }
}

// WithAlgorithm sets how hits are counted: [window.PerKey], [window.Aligned] or [window.Sliding]. With
// the others, [Open] fails with an error that matches [errors.ErrUnsupported], and so do every call of
// a [Client.Backend] and its Check. WithAlgorithm panics if there is no such algorithm.
//
// Aligned and sliding windows end by the clock of each client: the clocks must differ by less than a
// scale. Each aligned window costs the server an INSERT, which is slow (H7), and so does each part of a
// sliding one, which is an aligned window, too. If the clocks differ by more than half a scale, or by
// more than 5 s, a sliding window may miss some of the hits of the window before. All clients must use
// the same algorithm. Default: [window.PerKey].
func WithAlgorithm(a window.Algorithm) BackendOption {
	if a > window.SlidingLog {
		panic(fmt.Sprintf("throttr: WithAlgorithm: there is no algorithm %d", a))
	}
	return func(o *backendOptions) { o.algorithm = a }
}

// WithoutCoalescing makes each hit a request of its own. By default, hits on a window that
// come while a request for it is under way wait and share the next one: a hot key then costs
// a server one request for many hits. Counts are exact either way.
func WithoutCoalescing() BackendOption {
	return func(o *backendOptions) { o.withoutCoalescing = true }
}

// WithDenialMemory bounds for how long hits on a full window are denied without asking the
// server, and so how late a Set or Reset by another client takes effect: until d after the
// server was last asked, and never beyond the end of the window. If d is less than 0, every
// hit asks. Default: a tenth of the scale, but at least 10 ms and at most 1 s.
func WithDenialMemory(d time.Duration) BackendOption {
	return func(o *backendOptions) { o.denialMemory = d }
}

// WithMaxWindows bounds how many windows the backend remembers, and, at four times as many,
// the keys whose records it has yet to remove. To remember another window, the backend picks a few
// windows at random and forgets one of them, preferably one that is over. The next hit on a window
// that was forgotten can take one more round trip. If there are too many keys with records to remove,
// no window is opened for a further key, and the hit fails with [ErrTooManyWindows]. Default, and
// with n below 1: 262144.
func WithMaxWindows(n int) BackendOption {
	return func(o *backendOptions) { o.maxWindows = n }
}

// backendOptionsOf applies options to the defaults. It panics if one is nil, with the name of the
// function that was given them.
func backendOptionsOf(of string, opts []BackendOption) backendOptions {
	var o backendOptions
	for _, opt := range opts {
		if opt == nil {
			panic("throttr: " + of + " with a nil BackendOption")
		}
		opt(&o)
	}
	if o.maxWindows < 1 {
		o.maxWindows = defaultMaxWindows
	}
	return o
}

// Backend returns a [Backend] for [NewRateLimit] that keeps its windows on the client's
// servers. One per client is enough, for all its keys and scales. Close it, or the client. It
// panics if an option is nil.
func (c *Client[T]) Backend(opts ...BackendOption) *ServerBackend[T] {
	o := backendOptionsOf("Client.Backend", opts)
	forgetClock := func() {}
	if o.now == nil {
		forgetClock = realclock.Add(c.cfg.Servers)
	}
	servers := make([]fixedwindow.Server[T], len(c.servers.all))
	for i, s := range c.servers.all {
		s.pool.HoldParked()
		servers[i] = s.pool
	}
	b := &ServerBackend[T]{client: c, forgetClock: forgetClock, ended: make(chan struct{}), windows: fixedwindow.New(fixedwindow.Options[T]{
		Servers: servers, Names: c.cfg.Servers, Pick: c.servers.ring.Pick, Calls: &c.calls,
		Now: o.now, Algorithm: o.algorithm,
		MaxWindows: min(o.maxWindows, math.MaxInt/8), MaxQueued: c.cfg.MaxWaiting, MaxInFlight: c.cfg.MaxInFlight,
		DenialMemory: o.denialMemory, WithoutCoalescing: o.withoutCoalescing,
	})}
	if !c.register(b) { // the client is closed
		b.windows.Close()
		forgetClock()
	}
	return b
}

// Close ends the backend: further hits fail with [ErrClosed]. It removes the records of keys
// without an open window. If a server is not parked (see [Parking]), Close first waits for windows
// that end within a second. The records of other keys are left to other clients, which may still
// count in them. Close takes up to 1 s for windows to end, and then as long as it takes to remove the
// records: up to 20 s while servers respond, and up to 3 s if they do not. The client stays open. Close always returns nil, and
// can be called more than once.
func (b *ServerBackend[T]) Close() error {
	if b.closing.CompareAndSwap(false, true) {
		b.windows.Close()
		b.forgetClock()
		b.client.deregister(b) // not before: until now, Client.Close waits for b
		close(b.ended)
	}
	<-b.ended
	return nil
}

// BackendStats is what a [ServerBackend] remembers and has done.
type BackendStats struct {
	Windows int // windows, open ones and some that are over
	Records int // keys, each with a scale, whose records the backend has yet to remove

	// Every backend has a sweeper for each server, which removes the records of clients that
	// have died. Of the sweepers of all clients, one at a time is at work.
	Sweeps  uint64 // sweeps of a server by this backend
	Orphans uint64 // records that they have removed
	Foreign int    // records of other programs that its last sweeps have found, up to 256 per server
}

// Stats returns what the backend remembers and has done. See [WithMaxWindows] for the bounds.
func (b *ServerBackend[T]) Stats() BackendStats { return BackendStats(b.windows.Stats()) }

// Hit implements [Backend].
func (b *ServerBackend[T]) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (Window, error) {
	w, sent, err := b.windows.Hit(ctx, key, scale, limit, increment)
	if err != nil {
		return Window{}, b.failed("hit", key, sent, err)
	}
	return w, nil
}

// Inc implements [Backend].
func (b *ServerBackend[T]) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (Window, error) {
	w, sent, err := b.windows.Inc(ctx, key, scale, increment)
	if err != nil {
		return Window{}, b.failed("inc", key, sent, err)
	}
	return w, nil
}

// Get implements [Backend].
func (b *ServerBackend[T]) Get(ctx context.Context, key string, scale time.Duration) (Window, error) {
	w, sent, err := b.windows.Get(ctx, key, scale)
	if err != nil {
		return Window{}, b.failed("get", key, sent, err)
	}
	return w, nil
}

// Set implements [Backend].
func (b *ServerBackend[T]) Set(ctx context.Context, key string, scale time.Duration, count uint64) (Window, error) {
	w, sent, err := b.windows.Set(ctx, key, scale, count)
	if err != nil {
		return Window{}, b.failed("set", key, sent, err)
	}
	return w, nil
}

// Reset implements [Backend].
func (b *ServerBackend[T]) Reset(ctx context.Context, key string, scale time.Duration) error {
	if sent, err := b.windows.Reset(ctx, key, scale); err != nil {
		return b.failed("reset", key, sent, err)
	}
	return nil
}

// Delete implements [Backend]. Without scales, it ends the key's windows of those scales
// that the backend remembers: a server can't list the others cheaply.
func (b *ServerBackend[T]) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	n, sent, err := b.windows.Delete(ctx, key, scales...)
	if err != nil {
		return n, b.failed("delete", key, sent, err)
	}
	return n, nil
}

// Algorithm implements [window.Teller].
func (b *ServerBackend[T]) Algorithm() window.Algorithm { return b.windows.Algorithm() }

// Check implements [window.Checker]. It assumes that a scale which needs a parked server has one.
func (b *ServerBackend[T]) Check(scale time.Duration, limit uint64) error {
	return b.windows.Check(scale, limit)
}

// Precision returns how much later than the end of a window of the scale its ExpiresAt may be: the
// unit in which servers store the time that is left, and for takes also the time that the call
// took. It is 0 if windows are aligned, and for scales that can't be kept. See package lease.
func (b *ServerBackend[T]) Precision(scale time.Duration) time.Duration {
	return b.windows.Precision(scale)
}

// Take implements [window.Taker]. A take takes one round trip if the window is known. If its count
// may not be within the limit, it is read first.
func (b *ServerBackend[T]) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w Window, granted bool, err error) {
	w, granted, sent, err := b.windows.Take(ctx, key, scale, limit, n)
	if err != nil {
		return Window{}, false, b.failed("take", key, sent, err)
	}
	return w, granted, nil
}

// Peek implements [window.Peeker].
func (b *ServerBackend[T]) Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (Window, error) {
	w, sent, err := b.windows.Peek(ctx, key, scale, limit, n)
	if err != nil {
		return Window{}, b.failed("peek", key, sent, err)
	}
	return w, nil
}

// TakeAll implements [window.Taker]. If all windows are known and their scales are at least 2 s, it
// takes one round trip for each server that is asked. If a take is refused, it gives back the others,
// as GiveBack does.
func (b *ServerBackend[T]) TakeAll(ctx context.Context, limits []window.Limit, windows []Window) (granted bool, err error) {
	granted, sent, err := b.windows.TakeAll(ctx, limits, windows)
	if err != nil {
		return false, b.failed("take", limits[0].Key, sent, err)
	}
	return granted, nil
}

// GiveBack implements [window.Taker]. It subtracts n only if the window is certainly the one that
// was taken from, because the records of a window are used again for later ones. Otherwise n stays
// counted until the window ends. That happens if the connection of the take has ended, and, if the
// unit of the TTL is coarse, such as a minute, half a scale or a second after the take. See
// docs/reservations.md.
func (b *ServerBackend[T]) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (bool, error) {
	given, sent, err := b.windows.GiveBack(ctx, key, scale, id, n)
	if err != nil {
		return false, b.failed("give back", key, sent, err)
	}
	return given, nil
}

// failed returns the error of a call: a RequestError, unless it is the error of an argument.
func (b *ServerBackend[T]) failed(call, key string, sent bool, err error) error {
	if errors.Is(err, ErrRange) || errors.Is(err, ErrScale) || errors.Is(err, errors.ErrUnsupported) {
		return callError(call, key, err)
	}
	failed := requestError(b.client.servers.of(key).name, 0, sent, err)
	failed.Call, failed.Key = call, key
	return failed
}
