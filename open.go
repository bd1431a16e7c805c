package throttr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/rendezvous"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// OpenBackend is the [Backend] that [Open] returns. Its windows are on Throttr servers, as those
// of a [ServerBackend], or in memory. It is safe for concurrent use. Close it after use.
type OpenBackend struct {
	opened    atomic.Pointer[opened] // nil until the value size is known
	algorithm window.Algorithm

	// What follows is for a lazy start.
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

var (
	_ Backend        = (*OpenBackend)(nil)
	_ window.Checker = (*OpenBackend)(nil)
	_ window.Peeker  = (*OpenBackend)(nil)
	_ window.Taker   = (*OpenBackend)(nil)
	_ window.Teller  = (*OpenBackend)(nil)
)

// opened is what an OpenBackend passes its calls on to.
type opened struct {
	Backend
	memory *memory.Backend // the Backend, if it is in memory
	check  func(scale time.Duration, limit uint64) error
	stats  func() OpenStats
	close  func() error
	// attempted returns, for a server of a lazy client, a channel that is closed at the end of the
	// first attempt to connect.
	attempted func(server int) <-chan struct{}
}

// Open returns a backend for [NewRateLimit] that keeps windows where a URL says:
//
//	throttr://h1:9000,h2:9000?lazy=true     on Throttr servers; see [ParseURL]
//	memory://                               in memory; see package memory
//
// Open asks the servers for their value size. It fails if a server can't be reached, unless lazy
// is true. A program that starts while its servers are away then serves by its [Policy] or its
// fallback, and counts on the servers within a second of their return; see Config.LazyConnect.
// Open then learns the value size from the first server that responds.
//
// Options are those of [Client.Backend]; in memory, only [WithClock] and [WithAlgorithm] have an
// effect. Errors match [ErrConfig] or [ErrConnect]. If the value sizes of the servers differ,
// the error also matches [ErrValueSizeMismatch]. If servers can't keep the algorithm, it also matches
// [errors.ErrUnsupported]. Open panics if ctx or an option is nil.
func Open(ctx context.Context, url string, opts ...BackendOption) (*OpenBackend, error) {
	if ctx == nil {
		panic("throttr: Open: ctx is nil")
	}
	if path, ok := strings.CutPrefix(url, "memory://"); ok {
		if path != "" {
			return nil, fmt.Errorf("%w: URL memory:// takes neither a host nor parameters", ErrConfig)
		}
		return openMemory(backendOptionsOf("Open", opts)), nil
	}
	cfg, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	return OpenConfig(ctx, cfg, opts...)
}

// OpenConfig is [Open] for a Config, for example one with a TLS configuration.
func OpenConfig(ctx context.Context, cfg Config, opts ...BackendOption) (*OpenBackend, error) {
	if ctx == nil {
		panic("throttr: OpenConfig: ctx is nil")
	}
	algorithm := backendOptionsOf("OpenConfig", opts).algorithm // panics here rather than in the background
	if err := fixedwindow.CheckAlgorithm(algorithm); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.LazyConnect {
		return openLazily(ctx, cfg, opts), nil
	}
	o, err := openStrictly(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	b := &OpenBackend{algorithm: algorithm}
	b.opened.Store(o)
	return b, nil
}

// openMemory returns a backend in memory.
func openMemory(o backendOptions) *OpenBackend {
	b := &OpenBackend{algorithm: o.algorithm}
	m := memory.New(memory.WithClock(o.now), memory.WithAlgorithm(o.algorithm))
	b.opened.Store(&opened{
		Backend: m, memory: m, check: m.Check, close: m.Close,
		stats: func() OpenStats { return OpenStats{BackendStats: BackendStats{Windows: m.Len()}} },
	})
	return b
}

// memory returns the backend in memory, or nil.
func (b *OpenBackend) memory() *memory.Backend {
	if o := b.opened.Load(); o != nil {
		return o.memory
	}
	return nil
}

// openStrictly makes a client that has a connection to each server. It tries the value size that
// is the most common first, as a client asks for it anyway.
func openStrictly(ctx context.Context, cfg Config, opts []BackendOption) (*opened, error) {
	client, err := Connect[uint16](ctx, cfg)
	if err == nil {
		return openedBackend(client, opts), nil
	}
	var one, other *ValueSizeError
	if !errors.As(err, &one) {
		return nil, err
	}
	o, err := openSize(ctx, one.Actual, cfg, opts)
	if errors.As(err, &other) {
		return nil, fmt.Errorf("%w: %w: %s has %d-byte values and %s %d-byte values; servers that are used together must have the same",
			ErrConnect, ErrValueSizeMismatch, one.Server, one.Actual, other.Server, other.Actual)
	}
	return o, err
}

// openSize connects to servers of the given value size.
func openSize(ctx context.Context, size int, cfg Config, opts []BackendOption) (*opened, error) {
	switch size {
	case 1:
		return connectBackend[uint8](ctx, cfg, opts)
	case 2:
		return connectBackend[uint16](ctx, cfg, opts)
	case 4:
		return connectBackend[uint32](ctx, cfg, opts)
	default:
		return connectBackend[uint64](ctx, cfg, opts)
	}
}

func connectBackend[T codec.Value](ctx context.Context, cfg Config, opts []BackendOption) (*opened, error) {
	client, err := Connect[T](ctx, cfg)
	if err != nil {
		return nil, err
	}
	return openedBackend(client, opts), nil
}

// openedBackend returns a backend that closes its client.
func openedBackend[T codec.Value](client *Client[T], opts []BackendOption) *opened {
	b := client.Backend(opts...)
	return &opened{
		Backend: b, check: b.Check, close: client.Close,
		stats: func() OpenStats {
			return OpenStats{ValueSize: codec.Size[T](), Stats: client.Stats(), BackendStats: b.Stats()}
		},
		attempted: func(server int) <-chan struct{} { return client.servers.all[server].attempted },
	}
}

// openLazily returns a backend that learns the value size of its servers in the background. It
// waits for the first attempts as a lazy Connect does.
func openLazily(ctx context.Context, cfg Config, opts []BackendOption) *OpenBackend {
	b := &OpenBackend{
		cfg: cfg, options: opts, dialer: cfg.dialer(), ring: rendezvous.New(cfg.Servers),
		causes: make([]error, len(cfg.Servers)), algorithm: backendOptionsOf("Open", opts).algorithm,
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

// errNotYet says that the first attempt to connect is still under way.
var errNotYet = fmt.Errorf("%w: no response yet", ErrConnect)

// ask asks a server for its value size until this server, or another one, has responded. It calls
// attempted after the first attempt.
func (b *OpenBackend) ask(server int, attempted func()) {
	defer attempted()
	name := b.cfg.Servers[server]
	address, err := parseAddress(name)
	pauses := backoff.New(b.cfg.RetryPause, min(b.cfg.MaxRetryPause, pool.MaxStartPause))
	for err == nil {
		size, failure := dial.ProbeSize(b.ctx, b.dialer, name, address)
		if failure == nil {
			b.learned(size, server)
			return
		}
		b.fail(server, failure)
		attempted()
		err = pauses.Wait(b.ctx)
	}
}

// learned makes a client of servers of the given value size, unless there is one. It waits for
// the first attempt to connect to the server that has reported its size.
func (b *OpenBackend) learned(size, server int) {
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

// fail stores why a server has not reported its value size.
func (b *OpenBackend) fail(server int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.causes[server] = err
}

// unopened returns the error of a call while the value size is unknown.
func (b *OpenBackend) unopened(ctx context.Context, call, key string, scales ...time.Duration) error {
	for _, scale := range scales {
		if err := window.CheckScale(scale); err != nil {
			return callError(call, key, err)
		}
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

// Hit implements [Backend].
func (b *OpenBackend) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Hit(ctx, key, scale, limit, increment)
	}
	return Window{}, b.unopened(ctx, "hit", key, scale)
}

// Inc implements [Backend].
func (b *OpenBackend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Inc(ctx, key, scale, increment)
	}
	return Window{}, b.unopened(ctx, "inc", key, scale)
}

// Get implements [Backend].
func (b *OpenBackend) Get(ctx context.Context, key string, scale time.Duration) (Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Get(ctx, key, scale)
	}
	return Window{}, b.unopened(ctx, "get", key, scale)
}

// Set implements [Backend].
func (b *OpenBackend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (Window, error) {
	if o := b.opened.Load(); o != nil {
		return o.Set(ctx, key, scale, count)
	}
	return Window{}, b.unopened(ctx, "set", key, scale)
}

// Reset implements [Backend].
func (b *OpenBackend) Reset(ctx context.Context, key string, scale time.Duration) error {
	if o := b.opened.Load(); o != nil {
		return o.Reset(ctx, key, scale)
	}
	return b.unopened(ctx, "reset", key, scale)
}

// Delete implements [Backend]. Without scales, it is [ServerBackend.Delete].
func (b *OpenBackend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	if o := b.opened.Load(); o != nil {
		return o.Delete(ctx, key, scales...)
	}
	return 0, b.unopened(ctx, "delete", key, scales...)
}

// Take implements [window.Taker].
func (b *OpenBackend) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (Window, bool, error) {
	o := b.opened.Load()
	if o == nil {
		return Window{}, false, b.unopened(ctx, "take", key, scale)
	}
	taker, ok := o.Backend.(window.Taker)
	if !ok {
		return Window{}, false, errNoTaker
	}
	return taker.Take(ctx, key, scale, limit, n)
}

// TakeAll implements [window.Taker].
func (b *OpenBackend) TakeAll(ctx context.Context, limits []Limit, windows []Window) (bool, error) {
	if len(limits) == 0 {
		return true, nil
	}
	o := b.opened.Load()
	if o == nil {
		return false, b.unopened(ctx, "take", limits[0].Key, limits[0].Scale)
	}
	taker, ok := o.Backend.(window.Taker)
	if !ok {
		return false, errNoTaker
	}
	return taker.TakeAll(ctx, limits, windows)
}

// Peek implements [window.Peeker].
func (b *OpenBackend) Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (Window, error) {
	if o := b.opened.Load(); o != nil {
		return window.Peek(ctx, o.Backend, key, scale, limit, n)
	}
	return Window{}, b.unopened(ctx, "peek", key, scale)
}

// Algorithm implements [window.Teller].
func (b *OpenBackend) Algorithm() window.Algorithm { return b.algorithm }

// GiveBack implements [window.Taker].
func (b *OpenBackend) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (bool, error) {
	o := b.opened.Load()
	if o == nil {
		return false, b.unopened(ctx, "give back", key, scale)
	}
	taker, ok := o.Backend.(window.Taker)
	if !ok {
		return false, errNoTaker
	}
	return taker.GiveBack(ctx, key, scale, id, n)
}

// Check implements [window.Checker]. While the value size is unknown, because no server has been
// reached since a lazy start, it refuses only scales under 1 ms.
func (b *OpenBackend) Check(scale time.Duration, limit uint64) error {
	if o := b.opened.Load(); o != nil {
		return o.check(scale, limit)
	}
	return window.CheckScale(scale)
}

// Precision returns how much later than the end of a window of the scale its ExpiresAt may be: see
// [ServerBackend.Precision]. It is 0 in memory, and the scale while the value size is unknown.
func (b *OpenBackend) Precision(scale time.Duration) time.Duration {
	o := b.opened.Load()
	if o == nil {
		return scale
	}
	return precision(o.Backend, scale)
}

// OpenStats is what an [OpenBackend] is doing and has done.
type OpenStats struct {
	// ValueSize is that of the servers in bytes. It is 0 in memory, and while no server has been
	// reached since a lazy start.
	ValueSize    int
	Stats        // of the connections; no servers in memory
	BackendStats // of the windows
}

// Stats returns what the backend is doing and has done. The Err of a server says why it can't be
// used.
func (b *OpenBackend) Stats() OpenStats {
	if o := b.opened.Load(); o != nil {
		return o.stats()
	}
	var s OpenStats
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, name := range b.cfg.Servers {
		s.Servers = append(s.Servers, ServerStats{Server: name, Err: b.causes[i]})
	}
	return s
}

// Close ends the backend and its connections as [Client.Close] does. Further calls fail with
// [ErrClosed]. It always returns nil, and can be called more than once.
func (b *OpenBackend) Close() error {
	if b.cancel != nil {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.cancel()
		b.asking.Wait()
	}
	if o := b.opened.Load(); o != nil {
		return o.close()
	}
	return nil
}
