package rediswindow

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/redisreply"
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
	combiner func() *combiner
	alone    func() *coalesce.Combiner[alone]
	closed   atomic.Bool // nothing may be sent any more
	stats    stats
	wakes    wakes // of places in flight
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
	b.combiner = sync.OnceValue(b.newCombiner)
	b.alone = sync.OnceValue(b.newAlone)
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

// Hit implements [window.Backend]. Every hit of a fixed or aligned window is counted, unless the count would pass [MaxCount].
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	p := policy{limit: l, n: n}
	if _, err = b.check(&l); err == nil {
		err = checkNumber("N", n, MaxCount)
	}
	if err == nil && l.Algorithm.Rolling() {
		w, _, err = b.one(ctx, key, p)
	} else if err == nil {
		p.verb, p.limit.Max = count, 0 // hits with different limits are equal
		var within int
		if w, within, err = b.one(ctx, key, p); err == nil && within == 0 {
			w.Refused, w.RetryAfter = true, w.Left
			if n > l.Max {
				w.RetryAfter = window.Never
			}
		}
	}
	return w, b.after("hit", key, err)
}

// Take implements [window.Backend] with one script.
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if _, err = b.check(&l); err == nil {
		w, _, err = b.one(ctx, key, policy{limit: l, n: n})
	}
	return w, b.after("take", key, err)
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if _, err = b.check(&l); err == nil {
		w, _, err = b.one(ctx, key, policy{verb: peek, limit: l, n: n})
	}
	return w, b.after("peek", key, err)
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	return b.count(ctx, "charge", key, policy{verb: count, limit: l, n: n})
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	return b.count(ctx, "set", key, policy{verb: set, limit: l, n: n})
}

func (b *Backend) count(ctx context.Context, method, key string, p policy) (w window.Window, err error) {
	if _, err = b.check(&p.limit); err == nil {
		err = checkNumber("N", p.n, MaxCount)
	}
	if err == nil {
		if !p.limit.Algorithm.Rolling() {
			p.limit.Max = 0
		}
		w, _, err = b.one(ctx, key, p)
	}
	return w, b.after(method, key, err)
}

// GiveBack implements [window.Backend].
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (bool, error) {
	_, err := b.check(&l)
	done := 0
	if err == nil {
		done, err = b.giveBack(ctx, key, policy{verb: back, limit: l, n: n, id: id})
	}
	return done > 0, b.after("give back", key, err)
}

// giveBack makes a give-back, unless the ID is of no take.
func (b *Backend) giveBack(ctx context.Context, key string, p policy) (done int, err error) {
	if p.id <= 0 || p.limit.Algorithm.Rolling() && p.id&(1<<epochBits-1) == 0 {
		return 0, nil
	}
	_, done, err = b.one(ctx, key, p)
	return done, err
}

// Reset implements [window.Backend].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	_, err := b.check(&l)
	if err == nil {
		_, _, err = b.one(ctx, key, policy{verb: reset, limit: l})
	}
	return b.after("reset", key, err)
}

// Delete implements [window.Backend]. Without scales it deletes the windows of all scales,
// whichever client opened them. It deletes them in one atomic step.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	var which strings.Builder
	for _, scale := range scales {
		if err = checkScale(scale); err != nil {
			break
		}
		fmt.Fprintf(&which, " %d ", scale.Microseconds())
	}
	if err == nil {
		_, n, err = b.one(ctx, key, policy{verb: deleteAll, scales: which.String()})
	}
	return n, b.after("delete", key, err)
}

// Ping implements [window.BackendCloser].
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.requestAlone(ctx, "", func(ctx context.Context) (string, error) { return "", redisreply.New(b.client.Ping(ctx)) })
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
	b.closed.Store(true)
	b.wakes.stop()
	return nil
}

// time returns the time for a script, which is NaN for that of the server, and how many milliseconds after the end
// of its last window a hash expires. Redis may read its clock more than once during a script, and the clock of
// [WithClock] may be late.
func (b *Backend) time() (now, grace float64, err error) {
	if b.now == nil {
		return math.NaN(), 1000, nil
	}
	at := b.now()
	micros := at.UnixMicro()
	if micros < -maxTime || micros > maxTime {
		return 0, 0, fmt.Errorf("%w: the time of the clock is %v", window.ErrRange, at.Round(0))
	}
	return float64(micros), 3_600_000, nil
}

// after is called after each call: it counts the call, and adds the method and the key, cut to 64 characters, to its
// error. It returns nil for nil.
func (b *Backend) after(method, key string, err error) error {
	b.stats.count(err)
	if err == nil {
		return nil
	}
	return &callerr.Error{Package: "rediswindow", Call: method, Key: key, Err: err}
}
