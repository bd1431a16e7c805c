package throttr

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/rendezvous"
	"github.com/throttr-go/throttr/window"
)

// lazyBackend is a backend on servers whose value size is not known yet. Until one of them has told it,
// calls fail with ErrUnavailable.
type lazyBackend struct {
	window.Unimplemented
	opened atomic.Pointer[openServer] // nil until the value size is known

	cfg     Config // with its defaults
	options []BackendOption
	dialer  *dial.Dialer
	ring    rendezvous.Ring
	asking  sync.WaitGroup
	ctx     context.Context // ends when the value size is known, and with Close
	cancel  context.CancelFunc

	// mu guards what follows.
	mu     sync.Mutex
	closed bool
	sized  bool    // the value size is known, and a client is being made
	causes []error // for each server, why the last attempt to learn its value size has failed
}

// openLazily opens a backend on servers that need not be there. It waits for the first attempts to reach
// them, but not for longer than startWait.
func openLazily(ctx context.Context, cfg Config, opts []BackendOption) *lazyBackend {
	b := &lazyBackend{
		cfg: cfg, options: opts, dialer: cfg.dialer(), ring: rendezvous.New(cfg.Servers), causes: make([]error, len(cfg.Servers)),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	attempts := make([]<-chan struct{}, len(cfg.Servers))
	for i := range cfg.Servers {
		first := make(chan struct{})
		attempts[i] = first
		b.causes[i] = errNotYet
		b.asking.Go(func() { b.ask(i, sync.OnceFunc(func() { close(first) })) })
	}
	awaitAll(ctx, attempts)
	return b
}

// errNotYet is why a server is not there before the first attempt to reach it has ended.
var errNotYet = fmt.Errorf("%w: no response yet", ErrConnect)

// ask asks a server for its value size until one of the servers has told it.
func (b *lazyBackend) ask(server int, attempted func()) {
	defer attempted()
	name := b.cfg.Servers[server]
	address, err := parseAddress(name)
	pauses := backoff.New(b.cfg.MinBackoff, b.cfg.MaxBackoff)
	target := &dial.Target{Server: name, Address: address, Dialer: b.dialer}
	for err == nil {
		size, failure := dial.ProbeSize(b.ctx, target)
		if failure == nil {
			if b.failed(server) && backoff.Sleep(b.ctx, dial.StartUp) != nil { // it may have just been started
				return
			}
			b.learned(size, server)
			return
		}
		b.fail(server, failure)
		attempted()
		err = pauses.Wait(b.ctx, failure)
	}
}

// learned makes a client for servers of the given value size, which a server has told.
func (b *lazyBackend) learned(size, server int) {
	b.mu.Lock()
	first := !b.sized && !b.closed
	b.sized = true
	b.mu.Unlock()
	if !first {
		return
	}
	ended, cancel := context.WithCancel(b.ctx)
	cancel() // Connect must not wait for the other servers
	o, err := openSize(ended, size, b.cfg, b.options)
	if err != nil {
		b.fail(server, err)
		return
	}
	select {
	case <-o.attempted(server):
	case <-b.ctx.Done():
	}
	b.opened.Store(o)
	b.cancel() // the others need not be asked
}

// failed reports whether an attempt to reach a server has failed.
func (b *lazyBackend) failed(server int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.causes[server] != errNotYet
}

func (b *lazyBackend) fail(server int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.causes[server] = err
}

// unopened returns the error of a call before the value size is known.
func (b *lazyBackend) unopened(ctx context.Context, call, key string, l window.Limit) error {
	if _, err := b.Check(l); err != nil {
		return callError(call, key, err)
	}
	server := b.ring.Pick(key)
	b.mu.Lock()
	closed, cause := b.closed, b.causes[server]
	b.mu.Unlock()
	err := ctx.Err()
	switch {
	case err != nil:
	case closed:
		err = ErrClosed
	default:
		err = fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	return &RequestError{Call: call, Key: key, Server: b.cfg.Servers[server], Err: err}
}

// Check implements [Backend]. Before the value size is known, it knows all that does not depend on it.
func (b *lazyBackend) Check(l window.Limit) (window.Traits, error) {
	if o := b.opened.Load(); o != nil {
		return o.Check(l)
	}
	if err := limits.Check(l); err != nil {
		return window.Traits{}, err
	}
	if err := fixedwindow.CheckAlgorithm(l.Algorithm); err != nil {
		return window.Traits{}, err
	}
	return window.Traits{Precision: l.Scale}, nil
}

// Hit implements [Backend].
func (b *lazyBackend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Hit(ctx, key, l, n)
	}
	return window.Window{}, b.unopened(ctx, "hit", key, l)
}

// Take implements [Backend].
func (b *lazyBackend) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Take(ctx, key, l, n)
	}
	return window.Window{}, b.unopened(ctx, "take", key, l)
}

// Charge implements [Backend].
func (b *lazyBackend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Charge(ctx, key, l, n)
	}
	return window.Window{}, b.unopened(ctx, "charge", key, l)
}

// Peek implements [Backend].
func (b *lazyBackend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Peek(ctx, key, l, n)
	}
	return window.Window{}, b.unopened(ctx, "peek", key, l)
}

// Set implements [Backend].
func (b *lazyBackend) Set(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Set(ctx, key, l, n)
	}
	return window.Window{}, b.unopened(ctx, "set", key, l)
}

// TakeAll implements [Backend].
func (b *lazyBackend) TakeAll(ctx context.Context, takes []Take, windows []window.Window) (bool, error) {
	if o := b.opened.Load(); o != nil {
		return o.TakeAll(ctx, takes, windows)
	}
	for _, t := range takes {
		if err := b.unopened(ctx, "take", t.Key, t.Limit); err != nil {
			return false, err
		}
	}
	return true, nil
}

// GiveBack implements [Backend].
func (b *lazyBackend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (bool, error) {
	if o := b.opened.Load(); o != nil {
		return o.GiveBack(ctx, key, l, n, id)
	}
	return false, b.unopened(ctx, "give back", key, l)
}

// Reset implements [Backend].
func (b *lazyBackend) Reset(ctx context.Context, key string, l window.Limit) error {
	if o := b.opened.Load(); o != nil {
		return o.Reset(ctx, key, l)
	}
	return b.unopened(ctx, "reset", key, l)
}

// Delete implements [Backend].
func (b *lazyBackend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	if o := b.opened.Load(); o != nil {
		return o.Delete(ctx, key, scales...)
	}
	l := window.Limit{Scale: window.MinScale, Algorithm: window.FixedWindow}
	for _, l.Scale = range scales {
		if err := limits.CheckScale(l.Scale); err != nil {
			return 0, callError("delete", key, err)
		}
	}
	return 0, b.unopened(ctx, "delete", key, l)
}

// Ping implements [window.BackendCloser].
func (b *lazyBackend) Ping(ctx context.Context) error {
	if o := b.opened.Load(); o != nil {
		return o.Ping(ctx)
	}
	return b.unopened(ctx, "ping", "", window.Limit{Scale: window.MinScale, Algorithm: window.FixedWindow})
}

// Stats implements [window.BackendCloser].
func (b *lazyBackend) Stats() window.Stats {
	if o := b.opened.Load(); o != nil {
		return o.Stats()
	}
	var s window.Stats
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, name := range b.cfg.Servers {
		s.Stores = append(s.Stores, window.StoreStats{Name: name, Err: b.causes[i]})
	}
	return s
}

// Close implements [window.BackendCloser].
func (b *lazyBackend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.asking.Wait()
	if o := b.opened.Load(); o != nil {
		return o.Close()
	}
	return nil
}
