package throttr

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

// ServerBackend is a [Backend] that keeps windows on Throttr servers, exactly, for any number
// of clients. Make one per client, with [Client.Backend], and keep it: the hits of one backend
// share requests, those of two do not. docs/internals/windows.md says how it works, and on which
// conditions it is exact.
//
// Each backend has some connections of its own to each server, for opening windows. A server must
// respond within a quarter of the scale, and within 500 ms, for a window to be opened. Set, and
// Reset and Delete of an open window, take half a scale, and at most 1 s. The clocks of clients and
// servers need not agree.
//
// Servers keep fixed windows alone: a limit with another algorithm is an error that matches [ErrUnsupported].
//
// Limits, increments and counts go up to the largest value. The scale must be a whole number of a
// unit (1 ns to 1 h) in which about twice the scale and 45 s fit a value: 2 bytes do for whole
// milliseconds up to 10 s, whole seconds up to 9 hours, and so on; 1 byte does for no scale
// under a second. Any other scale or number is a [*RangeError], which names the value size that
// would do.
//
// All other errors but [ErrScale] and [errors.ErrUnsupported] are a [*RequestError], which says whether the hit may
// have been counted.
type ServerBackend struct {
	window.Unimplemented
	stats   []outage.Calls // of each server
	windows *fixedwindow.Backend
	client  *client
	owner   bool // the client was made for this backend, and ends with it

	closing atomic.Bool
	ended   chan struct{} // closed when Close is done
}

var _ window.BackendCloser = (*ServerBackend)(nil)

// defaultMaxWindows is how many windows a backend remembers.
const defaultMaxWindows = 1 << 18

type backendOptions struct {
	maxWindows   int
	denialMemory time.Duration
}

// BackendOption changes how [Client.Backend] works.
type BackendOption func(*backendOptions)

// WithDenialMemory bounds for how long hits on a full window are denied without asking the
// server, and so how late a Set or Reset by another client takes effect: until d after the
// server was last asked, and never beyond the end of the window. If d is less than 0, every
// hit asks. A circuit breaker takes such a denial for an answer of the server, so that an outage may be noticed as
// much later. Default: a tenth of the scale, but at least 10 ms and at most 1 s.
func WithDenialMemory(d time.Duration) BackendOption {
	return func(o *backendOptions) { o.denialMemory = d }
}

// WithMaxWindows bounds how many windows the backend remembers, beside those whose records it has yet to remove, which
// are four times as many at most. To remember another window, the backend picks a few windows at random and forgets one
// of them, preferably one that is over. The next hit on a window that was forgotten can take one more round trip. If
// there are too many keys with records to remove, no window is opened for a further key, and the hit fails with
// [ErrFull]. Default, and with n below 1: 262144.
func WithMaxWindows(n int) BackendOption {
	return func(o *backendOptions) { o.maxWindows = n }
}

// backendOptionsOf applies options to the defaults. It panics if one is nil, with the name of the
// function that was given them.
func backendOptionsOf(of string, opts []BackendOption) backendOptions {
	var o backendOptions
	api.Apply("throttr: "+of, &o, opts)
	if o.maxWindows < 1 {
		o.maxWindows = defaultMaxWindows
	}
	return o
}

// Backend returns a [Backend] for [NewRateLimit] that keeps its windows on the client's
// servers. One per client is enough, for all its keys and scales. Close it, or the client. It
// panics if an option is nil.
func (c *client) Backend(opts ...BackendOption) *ServerBackend {
	return c.newBackend(backendOptionsOf("Client.Backend", opts))
}

func (c *client) newBackend(o backendOptions) *ServerBackend {
	b := &ServerBackend{stats: make([]outage.Calls, len(c.servers.all)), client: c, ended: make(chan struct{})}
	servers := make([]fixedwindow.Server, len(c.servers.all))
	for i, s := range c.servers.all {
		s.pool.KeepParked()
		servers[i] = s.pool
	}
	b.windows = fixedwindow.New(fixedwindow.Options{
		Servers: servers, Names: c.cfg.Servers, Pick: c.servers.byKey.pick, Calls: c.calls,
		MaxWindows: min(o.maxWindows, math.MaxInt/8), MaxQueued: c.cfg.MaxQueued,
		MaxInFlight: c.cfg.MaxInFlight, DenialMemory: o.denialMemory,
	})
	if !c.register(b) { // the client is closed
		b.windows.Close()
	}
	return b
}

// Close ends the backend: further hits fail with [ErrClosed]. It removes the records of keys without an open window.
// If a server is not parked (see [Parking]), Close first waits for windows that end within a second. The records of
// other keys are left to other clients, which may still count in them. Close takes up to 1 s for windows to end, and
// then as long as it takes to remove the records: up to 20 s while servers respond, and up to 3 s if they do not. The
// client stays open, unless OpenServers has made it. Close always returns nil, and can be called more than once.
func (b *ServerBackend) Close() error {
	if b.owner {
		return b.client.Close() // which ends b
	}
	b.end()
	return nil
}

// end is Close, and leaves the client open.
func (b *ServerBackend) end() {
	if b.closing.CompareAndSwap(false, true) {
		b.windows.Close()
		b.client.deregister(b) // not before: until now, Client.Close waits for b
		close(b.ended)
	}
	<-b.ended
}

// RecordStats is what a [ServerBackend] has to do with the records on its servers.
type RecordStats struct {
	Records int // keys, each with a limit, not records: those whose records the backend has yet to remove

	// Every backend has a sweeper for each server, which removes the records of clients that
	// have died. Of the sweepers of all clients, one at a time is at work.
	Sweeps  uint64 // complete sweeps of a server by this backend: not those that failed or were broken off
	Orphans uint64 // records that its sweeps have removed
	Foreign int    // records of other programs that its last sweeps have found, up to 256 per server
}

// Records returns what the backend has to do with the records on its servers.
func (b *ServerBackend) Records() RecordStats {
	s := b.windows.Stats()
	return RecordStats{Records: s.Records, Sweeps: s.Sweeps, Orphans: s.Removed, Foreign: s.Foreign}
}

// Stats implements [window.BackendCloser]. See [WithMaxWindows] for the bound of windows.
func (b *ServerBackend) Stats() window.Stats {
	s := window.Stats{Windows: b.windows.Stats().Windows}
	for i, server := range b.client.servers.all {
		store := b.stats[i].Stats(server.name)
		store.Err = server.pool.Err()
		s.Stores = append(s.Stores, store)
	}
	return s
}

// Ping implements [window.BackendCloser]: it sends each server a QUERY.
func (b *ServerBackend) Ping(ctx context.Context) error {
	return b.client.ping(ctx)
}

// Part returns the server that keeps a key's windows, as it is named in Config.Servers. A [RateLimit] has a circuit
// breaker for each.
func (b *ServerBackend) Part(key string) string {
	return b.client.servers.of(key).name
}

// Check implements [Backend]. It assumes that a scale which needs a parked server has one. Until the value size of
// the servers is known, it knows all that does not depend on that.
func (b *ServerBackend) Check(l Limit) (window.Traits, error) { return b.windows.Check(l) }

// Hit implements [Backend].
func (b *ServerBackend) Hit(ctx context.Context, key string, l Limit, n uint64) (window.Window, error) {
	return b.window(ctx, "hit", (*fixedwindow.Backend).Hit, key, l, n)
}

// Take implements [Backend]. It takes one round trip if the window is known. If its count may not be
// within the limit, it is read first.
func (b *ServerBackend) Take(ctx context.Context, key string, l Limit, n uint64) (window.Window, error) {
	return b.window(ctx, "take", (*fixedwindow.Backend).Take, key, l, n)
}

// Charge implements [Backend]. What other clients take, and are refused, is in the counter until they have given it
// back. If it has no room then, a charge is tried once more, and otherwise counted in part.
func (b *ServerBackend) Charge(ctx context.Context, key string, l Limit, n uint64) (window.Window, error) {
	return b.window(ctx, "charge", (*fixedwindow.Backend).Charge, key, l, n)
}

// Peek implements [Backend].
func (b *ServerBackend) Peek(ctx context.Context, key string, l Limit, n uint64) (window.Window, error) {
	return b.window(ctx, "peek", (*fixedwindow.Backend).Peek, key, l, n)
}

// Set implements [Backend].
func (b *ServerBackend) Set(ctx context.Context, key string, l Limit, n uint64) (window.Window, error) {
	return b.window(ctx, "set", (*fixedwindow.Backend).Set, key, l, n)
}

// counting is a method of a [fixedwindow.Backend] that returns a window. Sent says whether a call that failed may have
// been executed.
type counting = func(b *fixedwindow.Backend, ctx context.Context, key string, l Limit,
	n uint64) (w window.Window, sent bool, err error)

// window has such a method called. Call is its name in errors.
func (b *ServerBackend) window(ctx context.Context, call string, do counting, key string, l Limit,
	n uint64) (w window.Window, err error) {
	w, sent, err := do(b.windows, ctx, key, l, n)
	return w, b.after(call, key, sent, err)
}

// TakeAll implements [Backend]. If all windows are known and their scales are at least 2 s, it takes one
// round trip for each server that is asked. If a take is refused, it gives back the others, as GiveBack
// does. Windows that it has opened stay open, with nothing in them. Calls for one of its windows can wait until it has
// ended, and so for another server that does not respond: bound its time.
func (b *ServerBackend) TakeAll(ctx context.Context, takes []Take, windows []window.Window) (granted bool, err error) {
	if len(takes) == 0 {
		return true, nil
	}
	granted, sent, err := b.windows.TakeAll(ctx, takes, windows)
	key := takes[0].Key
	var failed *fixedwindow.KeyError
	if errors.As(err, &failed) {
		key = failed.Key
		err = failed.Err
	}
	return granted, b.after("take", key, sent, err)
}

// GiveBack implements [Backend]. It subtracts n only if the window is certainly the one that was taken
// from, because the records of a window are used again for later ones. Otherwise n stays counted until the
// window ends. That happens if the connection of the take has ended, and, if the unit of the TTL is coarse,
// such as a minute, half a scale or a second after the take. See docs/servers.md.
func (b *ServerBackend) GiveBack(ctx context.Context, key string, l Limit, n uint64, id int64) (bool, error) {
	given, sent, err := b.windows.GiveBack(ctx, key, l, n, id)
	return given, b.after("give back", key, sent, err)
}

// Reset implements [Backend].
func (b *ServerBackend) Reset(ctx context.Context, key string, l Limit) error {
	sent, err := b.windows.Reset(ctx, key, l)
	return b.after("reset", key, sent, err)
}

// Delete implements [Backend]. Without scales, it ends the key's windows of those scales that the backend
// remembers, and with scales those of the names that it remembers, and of no name: a server
// can't list the others cheaply.
func (b *ServerBackend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	n, sent, err := b.windows.Delete(ctx, key, scales...)
	return n, b.after("delete", key, sent, err)
}

// after counts a call that has ended, and returns its error: a RequestError, unless err is nil or the error
// of an argument.
func (b *ServerBackend) after(call, key string, sent bool, err error) error {
	server := b.client.servers.byKey.pick(key)
	b.stats[server].Count(err)
	switch {
	case err == nil:
		return nil
	case outage.IsMistake(err):
		return callError(call, key, err)
	}
	return &RequestError{Call: call, Key: key, Server: b.client.servers.all[server].name, Sent: sent, Err: err}
}

// List implements [Backend]. A server lists all of its records, whatever the keys are, and then reads those of
// windows: 100,000 of them take it half a second. Servers do not store the Max of a limit. If a key and the name of
// its limit have over 80 bytes together, the server knows a digest of both, which is found without keys, or by the
// key if the limit has no name.
//
// If a server fails, the windows of the others come, and the error last, or several, joined.
func (b *ServerBackend) List(ctx context.Context, keys ...string) iter.Seq2[Listed, error] {
	if b.closing.Load() {
		return func(yield func(Listed, error) bool) { yield(Listed{}, b.after("list", "", false, ErrClosed)) }
	}
	return ofServers(ctx, b.client, func(s *server, yield func(Listed) bool) error {
		w := windowReader{client: b.client, server: s, yield: yield}
		err := readEntries(ctx, s, codec.List{}, b.client.recordDecoder, func(r conn.Record) bool {
			name, ok := fixedwindow.ParseName(r.Key)
			isOf := func(key string) bool { return name.IsOf(key, name.Limit()) }
			if !ok || len(keys) > 0 && !slices.ContainsFunc(keys, isOf) {
				return true
			}
			return w.add(ctx, r.Key, name)
		})
		if !w.ended {
			w.read(ctx)
		}
		if err != nil {
			w.failures = append(w.failures, err)
		}
		return joined(w.failures)
	})
}

// windowReader reads records of windows of a server, many at a time, and yields those that are open.
type windowReader struct {
	client   *client
	server   *server
	yield    func(Listed) bool
	names    []fixedwindow.Name
	call     *conn.Call // reads the records of names; nil if there are none
	ended    bool       // the loop has, or a read has failed
	failures []error
}

// readStep is the most records that are read at a time.
const readStep = 256

// add adds a record to those that are to be read, and reads them if they are many. It returns false at the end.
func (w *windowReader) add(ctx context.Context, record []byte, name fixedwindow.Name) (more bool) {
	if w.call == nil {
		w.call = w.client.newCall("")
	}
	_ = conn.Add(w.call, codec.Query{Key: record}) // the call fails, too
	w.names = append(w.names, name)
	if len(w.names) == min(readStep, w.client.cfg.MaxInFlight) {
		w.read(ctx)
	}
	return !w.ended
}

// read reads what is to be read.
func (w *windowReader) read(ctx context.Context) {
	names, call := w.names, w.call
	w.names, w.call = nil, nil
	if call == nil {
		return
	}
	done, sent, err := w.server.pool.Do(ctx, call)
	if err != nil {
		w.ended = true
		w.failures = append(w.failures, &RequestError{Server: w.server.name, Op: codec.OpQuery, Sent: sent, Err: err})
		return
	}
	if done {
		defer w.client.calls.Put(call)
	}
	now := time.Now()
	for i, response := range call.Responses {
		if !response.OK {
			continue
		}
		l := Listed{Key: names[i].Key, Digest: names[i].Hashed, Limit: names[i].Limit()}
		l.Window, _ = names[i].Window(w.client.calls.Size().Largest(), response.Quota, response.TTL.Duration(), now)
		if l.Window.ExpiresAt.IsZero() {
			continue
		}
		rest := conn.TTL{Amount: 1, Unit: response.TTL.Unit}.Duration() // the server rounds a TTL down
		l.Window.Left += rest
		l.Window.ExpiresAt = l.Window.ExpiresAt.Add(rest)
		if !w.yield(l) {
			w.ended = true
			return
		}
	}
}

// Sweep removes, from all servers, the records of windows that are over and that their clients
// have not removed. Every [ServerBackend] does so by itself. Sweep is for servers that no program
// with a ServerBackend uses at the moment. A dry run changes nothing. Sweep never
// touches the records of open windows and of other programs.
//
// Sweep pauses so that the requests of others pass, and takes up to half a minute for that. It
// returns what was found on each server, in the order of Config.Servers, and the errors, joined:
// each is a [*RequestError].
func (c *client) Sweep(ctx context.Context, dryRun bool) ([]inspect.Swept, error) {
	return each(c.servers.all, func(s *server) ([]inspect.Swept, error) {
		remover := fixedwindow.NewRemover(s.pool, c.calls)
		defer remover.Close()
		sweeper := sweep.New(sweep.Options{
			Server: s.pool, Inspect: remover.Inspect, Remove: remover.Remove, Calls: c.calls,
			MaxInFlight: c.cfg.MaxInFlight, MaxQueued: c.cfg.MaxQueued, DryRun: dryRun,
		})
		r, err := sweeper.Sweep(ctx, time.Now().Add(sweepTime))
		if err != nil {
			err = &RequestError{Server: s.name, Op: codec.OpList, Sent: !dryRun, Err: err}
		}
		return []inspect.Swept{{
			Server: s.name, Records: r.Records, Removed: r.Removed,
			Kept: r.Kept, Foreign: r.Foreign,
		}}, err
	})
}

// sweepTime is how long Client.Sweep may take so that it does not delay others' requests.
const sweepTime = 30 * time.Second
