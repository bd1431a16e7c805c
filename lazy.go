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
	*ServerBackend                              // its windows are unopenedWindows until the value size is known
	opened         atomic.Pointer[ownedBackend] // nil until then

	cfg     Config // with its defaults
	options []BackendOption
	dialer  *dial.Dialer
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
	b := &lazyBackend{cfg: cfg, options: opts, dialer: cfg.dialer(), causes: make([]error, len(cfg.Servers))}
	b.ServerBackend = newServerBackend(unopenedWindows{b}, cfg.Servers, rendezvous.New(cfg.Servers).Pick, b.away)
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
	b.inner.Store(o.inner.Load())
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

// away returns why there is no connection to a server.
func (b *lazyBackend) away(server int) error {
	if o := b.opened.Load(); o != nil {
		return o.away(server)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.causes[server]
}

// Ping implements [window.BackendCloser].
func (b *lazyBackend) Ping(ctx context.Context) error {
	if o := b.opened.Load(); o != nil {
		return o.Ping(ctx)
	}
	return b.after("ping", "", false, unopenedWindows{b}.away(ctx, ""))
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

// unopenedWindows are those of a lazyBackend before the value size is known. All calls fail.
type unopenedWindows struct{ b *lazyBackend }

var _ innerBackend = unopenedWindows{}

// away returns why a call for a key can't be made.
func (u unopenedWindows) away(ctx context.Context, key string) error {
	u.b.mu.Lock()
	closed, cause := u.b.closed, u.b.causes[u.b.pick(key)]
	u.b.mu.Unlock()
	switch err := ctx.Err(); {
	case err != nil:
		return err
	case closed:
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

// err returns the error of a call for a key and a limit.
func (u unopenedWindows) err(ctx context.Context, key string, l Limit) error {
	if _, err := u.Check(l); err != nil {
		return err
	}
	return u.away(ctx, key)
}

// Check knows all that does not depend on the value size.
func (unopenedWindows) Check(l Limit) (window.Traits, error) {
	if err := limits.Check(l); err != nil {
		return window.Traits{}, err
	}
	if err := fixedwindow.CheckAlgorithm(l.Algorithm); err != nil {
		return window.Traits{}, err
	}
	return window.Traits{Precision: l.Scale}, nil
}

func (u unopenedWindows) Hit(ctx context.Context, key string, l Limit, _ uint64) (w window.Window, sent bool, err error) {
	return w, false, u.err(ctx, key, l)
}

func (u unopenedWindows) Take(ctx context.Context, key string, l Limit, _ uint64) (w window.Window, sent bool, err error) {
	return w, false, u.err(ctx, key, l)
}

func (u unopenedWindows) Charge(ctx context.Context, key string, l Limit, _ uint64) (w window.Window, sent bool, err error) {
	return w, false, u.err(ctx, key, l)
}

func (u unopenedWindows) Peek(ctx context.Context, key string, l Limit, _ uint64) (w window.Window, sent bool, err error) {
	return w, false, u.err(ctx, key, l)
}

func (u unopenedWindows) Set(ctx context.Context, key string, l Limit, _ uint64) (w window.Window, sent bool, err error) {
	return w, false, u.err(ctx, key, l)
}

func (u unopenedWindows) TakeAll(ctx context.Context, takes []Take, _ []window.Window) (granted, sent bool, err error) {
	for _, t := range takes {
		if err := u.err(ctx, t.Key, t.Limit); err != nil {
			return false, false, err
		}
	}
	return true, false, nil
}

func (u unopenedWindows) GiveBack(ctx context.Context, key string, l Limit, _ uint64, _ int64) (given, sent bool, err error) {
	return false, false, u.err(ctx, key, l)
}

func (u unopenedWindows) Reset(ctx context.Context, key string, l Limit) (sent bool, err error) {
	return false, u.err(ctx, key, l)
}

func (u unopenedWindows) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, sent bool, err error) {
	for _, scale := range scales {
		if err := limits.CheckScale(scale); err != nil {
			return 0, false, err
		}
	}
	return 0, false, u.away(ctx, key)
}

func (unopenedWindows) Stats() (s fixedwindow.Stats) { return s }

func (unopenedWindows) Close() {}
