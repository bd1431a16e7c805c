package rediswindow

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/window"
)

const (
	// MaxCount is the largest Max, Burst, n and count that the backend accepts: 2^53-1.
	MaxCount = 1<<53 - 1
	// MaxScale is the longest scale that the backend accepts: 142 years.
	MaxScale = maxTime * time.Microsecond

	// maxTime bounds the times, in microseconds, that scripts compute with. The sum of two of
	// them is exact in a double. The bound is reached in the year 2112.
	maxTime = 1 << 52
)

// Backend is a [window.Backend] on Redis. Make one with [New].
//
// It keeps all algorithms. A scale must be a whole number of microseconds, up to [MaxScale], or the error
// matches [window.ErrScale]. A Max, a Burst or an n over [MaxCount], or over the bound of [WithMaxLog], is a
// [window.RangeError].
type Backend struct {
	window.Unimplemented
	options
	client   Client
	combiner func() *combiner // of hits on windows
	gate     *gate            // of requests that are not shared
	stats    stats
}

var _ window.BackendCloser = (*Backend)(nil)

// New returns a backend that keeps its windows on the server or cluster of client. The caller
// still owns the client, may use it for other things, and closes it. New panics if client or an
// option is nil.
func New(client Client, opts ...Option) *Backend {
	if client == nil {
		panic("rediswindow: New: client is nil")
	}
	b := &Backend{options: newOptions(opts), client: client}
	b.gate = newGate(b.maxQueued)
	b.combiner = sync.OnceValue(b.newCombiner)
	return b
}

// Check implements [window.Backend].
func (b *Backend) Check(l window.Limit) (window.Traits, error) {
	t, err := b.check(&l)
	if err != nil {
		return t, &callerr.Error{Package: "rediswindow", Err: err}
	}
	return t, nil
}

// Hit implements [window.Backend]. Every hit on a window is counted, unless the count would pass [MaxCount].
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if _, err = b.check(&l); err == nil {
		err = checkNumber("N", n, MaxCount)
	}
	switch {
	case err != nil:
	case l.Algorithm.Rolling():
		w, err = b.take(ctx, &window.Take{Key: key, Limit: l, N: n})
	default:
		var full bool
		if w, full, err = b.add(ctx, key, &l, n); full {
			w.Refused, w.RetryAfter = true, w.Left
			if n > l.Max {
				w.RetryAfter = window.Never
			}
		}
	}
	return w, b.failed("hit", key, err)
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	t, err := b.check(&l)
	if err == nil {
		err = checkNumber("N", n, MaxCount)
	}
	switch {
	case err != nil:
	case l.Algorithm.Rolling():
		w, err = b.count(ctx, &window.Take{Key: key, Limit: l, N: n}, t.MaxCount, false)
	default:
		w, _, err = b.add(ctx, key, &l, n)
	}
	return w, b.failed("charge", key, err)
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	t, err := b.check(&l)
	if err == nil {
		err = checkNumber("N", n, MaxCount)
	}
	if err == nil {
		w, err = b.count(ctx, &window.Take{Key: key, Limit: l, N: n}, t.MaxCount, true)
	}
	return w, b.failed("set", key, err)
}

// Reset implements [window.Backend].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	_, err := b.check(&l)
	if err == nil {
		_, err = b.delete(ctx, key, "field", fieldOf(&l))
	}
	return b.failed("reset", key, err)
}

// Delete implements [window.Backend]. Without scales it deletes the windows of all scales,
// whichever client opened them. It deletes them in one atomic step.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	which := make([]string, 0, 1+len(scales))
	which = append(which, "scales")
	for _, scale := range scales {
		if err = checkScale(scale); err != nil {
			break
		}
		which = append(which, strconv.FormatInt(scale.Microseconds(), 10))
	}
	if err == nil {
		n, err = b.delete(ctx, key, which...)
	}
	return n, b.failed("delete", key, err)
}

// Ping implements [window.BackendCloser].
func (b *Backend) Ping(ctx context.Context) error {
	_, err := do(ctx, b, "", func(ctx context.Context) (struct{}, error) { return struct{}{}, replyError(b.client.Ping(ctx)) })
	if b.stats.count(err); err != nil {
		return &callerr.Error{Package: "rediswindow", Call: "ping", Err: err}
	}
	return nil
}

// Stats implements [window.BackendCloser].
func (b *Backend) Stats() window.Stats {
	return window.Stats{Stores: []window.StoreStats{b.stats.read(b.client.Name())}}
}

// Close ends the backend: further calls fail with an error that matches [window.ErrClosed]. It does not
// close the client, which the caller of [New] owns. It always returns nil, and can be called more than once.
func (b *Backend) Close() error {
	b.gate.closed.Store(true)
	return nil
}

// count counts the N of a take, whether it fits or not, but no more than the most. If fresh, it forgets
// what was counted before.
func (b *Backend) count(ctx context.Context, t *window.Take, most uint64, fresh bool) (w window.Window, err error) {
	now, err := b.time()
	if err != nil {
		return w, err
	}
	first := "0"
	if fresh {
		first = "1"
	}
	a := algorithms[t.Limit.Algorithm]
	args := append(make([]string, 0, 10), now, b.grace(), first, fieldOf(&t.Limit))
	args = a.appendArgs(args, &call{Take: t, id: newID(), count: true, most: most})
	response, err := b.run(ctx, countScript, []string{b.name(t.Key)}, args)
	if err != nil {
		return w, err
	}
	if len(response) != 1+stateSize {
		return w, fmt.Errorf("script returned %v", response)
	}
	return a.describe(&t.Limit, false, response[0], response[1:]), nil
}

func (b *Backend) delete(ctx context.Context, key string, which ...string) (int, error) {
	now, err := b.time()
	if err != nil {
		return 0, err
	}
	deleted, err := b.run(ctx, deleteScript, []string{b.name(key)}, append([]string{now, b.grace()}, which...))
	if err != nil || len(deleted) == 0 {
		return 0, err
	}
	return int(deleted[0]), nil
}

// time returns the time argument of a script: empty for the time of the server.
func (b *Backend) time() (string, error) {
	if b.now == nil {
		return "", nil
	}
	now := b.now()
	micros := now.UnixMicro()
	if micros < -maxTime || micros > maxTime {
		return "", fmt.Errorf("%w: the time of the clock is %v", window.ErrRange, now.Round(0))
	}
	return strconv.FormatInt(micros, 10), nil
}

// grace returns how many milliseconds after the end of its last window a hash expires. Redis may
// read its clock more than once during a script, and the clock of [WithClock] may be late.
func (b *Backend) grace() string {
	if b.now != nil {
		return "3600000"
	}
	return "1000"
}

// failed counts a call, and adds the method and the key, cut to 64 characters, to its error. It returns nil
// for nil.
func (b *Backend) failed(method, key string, err error) error {
	b.stats.count(err)
	if err == nil {
		return nil
	}
	return &callerr.Error{Package: "rediswindow", Call: method, Key: key, Err: err}
}
