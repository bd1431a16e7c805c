package rediswindow

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// MaxCount is the largest Max, Burst, n and count that the backend accepts: 2^53-1.
const MaxCount = 1<<53 - 1

// Backend is a [window.Backend] on Redis. Make one with [New].
//
// It keeps all algorithms. A scale must be a whole number of microseconds, or the error matches [window.ErrScale]. A
// Max or a Burst over [MaxCount], or over the bound of [WithMaxLog], is a [window.RangeError], and so is an n over
// [MaxCount] that is not charged.
type Backend struct {
	window.Unimplemented
	options
	client Client
	single *node       // of a client that is not one of a cluster, or as long as nodes are not known
	closed atomic.Bool // nothing may be sent any more
	stats  outage.Calls
	wakes  *wakes // of places in flight

	topology atomic.Pointer[topology] // nil: not known yet
	askAt    atomic.Int64             // when it is asked for next, in nanoseconds since 1970; never while it is
	nodes    sync.Map                 // of a cluster, by name: all that were ever known
}

var _ window.BackendCloser = (*Backend)(nil)

// New returns a backend that keeps its windows on the server or cluster of client. The caller
// still owns the client, may use it for other things, and closes it. New panics if client or an
// option is nil.
func New(client Client, opts ...Option) *Backend {
	if client == nil {
		panic("rediswindow: New: client is nil")
	}
	b := &Backend{client: client}
	b.options = options{prefix: DefaultPrefix, maxLog: DefaultMaxLog, maxQueued: DefaultMaxQueued}
	api.Apply("rediswindow: New", &b.options, opts)
	b.single = b.newNode("")
	b.wakes = newWakes(client, b.prefix)
	return b
}

// Check implements [window.Backend].
func (b *Backend) Check(l window.Limit) (window.Traits, error) {
	t, err := b.check(&l)
	return t, failed("", "", err)
}

// check returns what the backend promises about a limit, or why it can't keep it.
func (b *Backend) check(l *window.Limit) (t window.Traits, err error) {
	if err := limits.Check(l); err != nil {
		return t, err
	}
	if l.Scale%time.Microsecond != 0 {
		return t, fmt.Errorf("%w: %v is not a whole number of microseconds", window.ErrScale, l.Scale)
	}
	t.MaxCount = MaxCount
	if l.Algorithm.Rolling() {
		t.Precision = time.Microsecond // of the times in scripts
	}
	if l.Algorithm == window.SlidingLog {
		t.MaxCount = b.maxLog
	}
	if err := cmp.Or(checkNumber("Max", l.Max, t.MaxCount), checkNumber("Burst", l.Burst, t.MaxCount)); err != nil {
		return window.Traits{}, err
	}
	return t, nil
}

// checkNumber returns an error if n is more than the most.
func checkNumber(field string, n, most uint64) error {
	if n <= most {
		return nil
	}
	bound := fmt.Sprintf("at most %d", most)
	if most == MaxCount {
		bound = "at most 2^53-1"
	}
	return &window.RangeError{Field: field, Value: strconv.FormatUint(n, 10), Bound: bound}
}

// Hit implements [window.Backend]. Every hit of a fixed or aligned window is counted, unless the count would pass
// [MaxCount].
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	v := charge
	if l.Algorithm.Rolling() {
		v = take
	}
	w, made, err := b.ask(ctx, "hit", key, []op{{verb: v, limit: l, n: n}})
	if v == charge && !made && err == nil {
		w.Refused = true
		if n > l.Max {
			w.RetryAfter = window.Never
		}
	}
	return w, err
}

// Take implements [window.Backend] with one script.
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	w, _, err := b.ask(ctx, "take", key, []op{{verb: take, limit: l, n: n}})
	return w, err
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	w, _, err := b.ask(ctx, "peek", key, []op{{verb: peek, limit: l, n: n}})
	return w, err
}

// Charge implements [window.Backend]. Any n can be charged: a count that would pass [MaxCount] stays there.
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	w, _, err := b.ask(ctx, "charge", key, []op{{verb: charge, limit: l, n: min(n, MaxCount)}})
	return w, err
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	w, _, err := b.ask(ctx, "set", key, []op{{verb: set, limit: l, n: n}})
	return w, err
}

// GiveBack implements [window.Backend].
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (done bool, err error) {
	_, done, err = b.ask(ctx, "give back", key, []op{{verb: giveBack, limit: l, n: n, of: takeOf(&l, id)}})
	return done, err
}

// Reset implements [window.Backend].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	_, _, err := b.ask(ctx, "reset", key, []op{{verb: reset, limit: l}})
	return err
}

// ask makes a call of one op. It returns the window, and whether all of n was counted, given back or forgotten.
func (b *Backend) ask(ctx context.Context, method, key string, one []op) (w window.Window, made bool, err error) {
	o := &one[0]
	_, err = b.check(&o.limit)
	if err == nil && (o.verb == charge || o.verb == set) {
		err = checkNumber("N", o.n, MaxCount)
	}
	if err == nil {
		o.name = b.nameOf(key)
		err = b.run(ctx, one)
	}
	if err == nil {
		w, made, err = o.window()
	}
	return w, made, b.after(method, key, err)
}

// Delete implements [window.Backend]. Without scales it deletes the windows of all scales, whichever client opened
// them. It asks which there are, and ends them in one atomic step.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	for _, scale := range scales {
		if _, err := b.check(&window.Limit{Scale: scale, Algorithm: window.FixedWindow}); err != nil {
			return 0, b.after("delete", key, err)
		}
	}
	ended, err := b.ofAll(ctx, reset, b.nameOf(key), scales)
	for i := range ended {
		if _, done, _ := ended[i].window(); done {
			n++
		}
	}
	return n, b.after("delete", key, err)
}

// Ping implements [window.BackendCloser]. It runs the script on one server, under the prefix, in a way that changes
// nothing: so it fails if the user or the server can't do what calls need.
func (b *Backend) Ping(ctx context.Context) error {
	key := b.keyOfSlot(rand.IntN(slots))
	nothing := op{verb: reset, limit: window.Limit{Max: 1, Scale: time.Millisecond, Algorithm: window.FixedWindow}}
	_, err := b.evalAlone(ctx, windowsScript, []string{key}, b.time(), b.textOf(&nothing))
	return b.after("ping", "", err)
}

// Stats implements [window.BackendCloser].
func (b *Backend) Stats() window.Stats {
	return window.Stats{Stores: []window.StoreStats{b.stats.Stats(b.client.Name())}}
}

// Close ends the backend: further calls fail with an error that matches [window.ErrClosed]. It does not
// close the client, which the caller of [New] owns. It always returns nil, and can be called more than once.
func (b *Backend) Close() error {
	b.closed.Store(true)
	b.wakes.stop()
	return nil
}

// time returns the time for a script, which is empty for that of the server.
func (b *Backend) time() string {
	if b.now == nil {
		return ""
	}
	return strconv.FormatInt(b.now().UnixMicro(), 10)
}

// after is called after each call: it counts the call, and returns its error.
func (b *Backend) after(method, key string, err error) error {
	b.stats.Count(err)
	return failed(method, key, err)
}

// failed returns the error of a method for a key, or nil. One that names them already is returned as it is.
func failed(method, key string, err error) error {
	if named, ok := err.(*api.CallError); err == nil || ok && named.Package == "rediswindow" {
		return err
	}
	return &api.CallError{Package: "rediswindow", Call: method, Key: key, Err: err}
}
