package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// operation is a call of a limiter, and its result.
type operation struct {
	kind     operationKind
	key      modelKey
	n, limit uint64

	// start and end are the times between which it is executed, if it is. A failed operation may
	// be executed after its call has returned.
	start, end time.Time
	count      uint64
	allowed    bool
	err        error
	notSent    bool // err says that it was not executed
}

type operationKind string

const (
	opHit   operationKind = "Hit"
	opInc   operationKind = "Inc"
	opSet   operationKind = "Set"
	opReset operationKind = "Reset"
)

// timeFormat is how operations and histories print times.
const timeFormat = "04:05.000000000"

// randomOperation returns an operation that was not done yet.
func randomOperation(r *rand.Rand, scales []time.Duration) operation {
	op := operation{
		key: modelKey{string('a' + rune(r.IntN(3))), scales[r.IntN(len(scales))]},
		n:   1 + r.Uint64N(maxIncrement), limit: []uint64{5, 10, 20, 40}[r.IntN(4)],
	}
	switch n := r.IntN(40); {
	case n < 20:
		op.kind, op.n = opHit, 1
	case n < 30:
		op.kind = opHit
	case n < 38 || op.key.key != replacedKey:
		op.kind = opInc
	case n < 39:
		op.kind, op.n = opSet, []uint64{0, 10, 30}[r.IntN(3)]
	default:
		op.kind = opReset
	}
	return op
}

// do does the operation.
func (op *operation) do(ctx context.Context, limiter *throttr.RateLimit, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	key, scale := op.key.key, op.key.scale
	op.start = time.Now()
	switch op.kind {
	case opHit:
		var res throttr.Result
		res, op.err = limiter.HitN(ctx, key, throttr.Limit{Max: op.limit, Scale: scale}, op.n)
		op.count, op.allowed = res.Count, res.Allowed
	case opInc:
		op.count, op.err = limiter.Inc(ctx, key, scale, op.n)
	case opSet:
		_, op.err = limiter.Set(ctx, key, scale, op.n)
	case opReset:
		op.err = limiter.Reset(ctx, key, scale)
	}
	op.end = time.Now()
	if op.err != nil {
		op.notSent = testkit.SafeToRetry(op.err)
		op.end = op.end.Add(time.Hour)
	}
}

// granted reports whether the operation has got places in a window.
func (op operation) granted() bool {
	return op.err == nil && (op.kind == opInc || op.kind == opHit && op.allowed)
}

// replaces reports whether the operation ends a window.
func (op operation) replaces() bool { return op.kind == opSet || op.kind == opReset }

// includes reports whether t is between start and end.
func (op operation) includes(t time.Time) bool { return !t.Before(op.start) && !t.After(op.end) }

func (op operation) String() string {
	return fmt.Sprintf("%s %s/%v n=%d limit=%d from %v to %v: %d, allowed %v, %v", op.kind, op.key.key, op.key.scale, op.n, op.limit,
		op.start.Format(timeFormat), op.end.Format(timeFormat), op.count, op.allowed, op.err)
}

// operations are those of all callers, by key.
type operations struct {
	mu  sync.Mutex // guards all
	all map[modelKey][]operation
}

func (o *operations) add(op operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[modelKey][]operation{}
	}
	o.all[op.key] = append(o.all[op.key], op)
}

func (o *operations) of(k modelKey) []operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all[k])
}

// modelKey identifies the windows of a key and scale.
type modelKey struct {
	key   string
	scale time.Duration
}
