package rediswindow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

// The bounds of coalescing, beside that of [WithMaxQueued]. In a cluster, maxInFlight is that of each slot.
const (
	maxHits     = 256 // that share a request, so that a script keeps Redis busy for 1 to 3 ms at most
	maxInFlight = 8   // requests
)

// ErrOverloaded is [window.ErrOverloaded]. It says that as many calls were queued as may be, because
// requests were not answered. See [WithMaxQueued]. The call was not sent.
var ErrOverloaded = window.ErrOverloaded

// errAlone says that a hit was not counted, because something is wrong with its window. A request of
// its own tells what.
var errAlone = errors.New("the hit must be sent alone")

// errHalf says that a window was opened, but not all that belongs to it was done.
var errHalf = errors.New("the hit was counted, but the end of its window could not be set: may the user of Redis run PTTL and PEXPIRE?")

// slots is the number of slots of a cluster.
const slots = 16384

// windowKey identifies a window.
type windowKey struct {
	key   string
	scale time.Duration
}

// added is what a script has found that added to a window. Times are in microseconds since 1970.
type added struct {
	before         int64 // the count before
	start, now, id int64
}

// window returns the window with a count.
func (a *added) window(scale time.Duration, count uint64) window.Window {
	return describe(scale, int64(min(count, MaxCount+1)), a.start, a.now, a.now, a.id)
}

type (
	sum      = coalesce.Sum[windowKey, added]
	combiner = coalesce.Combiner[windowKey, added]
)

// newCombiner returns what lets hits share requests. In a cluster, a request accesses one slot.
func (b *Backend) newCombiner() *combiner {
	partitions := 1
	if b.client.Cluster() {
		partitions = slots
	}
	return coalesce.NewCombiner(coalesce.CombinerOptions[windowKey, added]{
		Add: b.addAll, Partitions: partitions, MaxHits: maxHits, MaxInFlight: maxInFlight, MaxQueued: b.maxQueued,
	})
}

// add adds n to a window.
func (b *Backend) add(ctx context.Context, key string, scale time.Duration, n uint64) (w window.Window, err error) {
	if b.combiner == nil {
		return b.addAlone(ctx, key, scale, n)
	}
	partition := 0
	if b.client.Cluster() {
		partition = int(slotOf(hashTag(key)))
	}
	s, sent, err := b.combiner().Do(ctx, partition, windowKey{key, scale}, n)
	switch {
	case err == errAlone:
		if w, err = b.addAlone(ctx, key, scale, n); err == nil || err != ctx.Err() {
			return w, err
		}
		return w, fmt.Errorf("%w; the hit may have been counted", err)
	case err != nil && err == ctx.Err():
		if sent {
			return w, fmt.Errorf("%w; the hit may have been counted", err)
		}
		return w, fmt.Errorf("%w; the hit was not counted", err)
	case err != nil:
		return w, err
	}
	return s.Result.window(scale, uint64(s.Result.before)+min(s.Before, MaxCount+1)+n), nil
}

// addAlone adds n to a window with a request of its own.
func (b *Backend) addAlone(ctx context.Context, key string, scale time.Duration, n uint64) (w window.Window, err error) {
	r, err := do(ctx, b, b.name(key), func(ctx context.Context) (added, error) {
		sums := [1]sum{{Key: windowKey{key, scale}, N: n}}
		err := b.addTogether(ctx, sums[:])
		return sums[0].Result, cmp.Or(err, sums[0].Err)
	})
	if err != nil {
		return w, err
	}
	return r.window(scale, uint64(r.before)+n), nil
}

// addAll adds to windows with one script, for the combiner, which bounds its requests itself. If their keys differ, it makes a script for each of them in a
// cluster, because while a slot moves to another node, a script may have only one key. That is rare: the
// keys share a slot by chance. It does so as well if a server says that they are not in one slot: what
// seems to be a server may be a proxy to several.
func (b *Backend) addAll(ctx context.Context, sums []sum) error {
	differ := slices.ContainsFunc(sums, func(s sum) bool { return s.Key.key != sums[0].Key.key })
	if !differ || !b.client.Cluster() {
		err := b.addTogether(ctx, sums)
		if !differ || err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT") {
			return err
		}
	}
	var all sync.WaitGroup
	for i := range sums {
		all.Go(func() { sums[i].Err = b.addTogether(ctx, sums[i:i+1]) })
	}
	all.Wait()
	return nil
}

// addTogether adds to windows with one script.
func (b *Backend) addTogether(ctx context.Context, sums []sum) error {
	now, err := b.time()
	if err != nil {
		return err
	}
	keys := make([]string, len(sums))
	args := append(make([]string, 0, 16), now, b.aligned(), b.grace(), newID())
	for i := range sums {
		s := &sums[i]
		keys[i] = b.name(s.Key.key)
		last := i == len(sums)-1
		if !last && sums[i+1].Key.scale == s.Key.scale && sums[i+1].N == s.N {
			continue
		}
		args = append(args, strconv.FormatInt(s.Key.scale.Microseconds(), 10), strconv.FormatUint(min(s.N, MaxCount+1), 10))
		if !last {
			args = append(args, strconv.Itoa(i+1))
		}
	}
	response, err := b.eval(ctx, hitScript, keys, args)
	if err != nil {
		return err
	}
	if len(response) != 1+3*len(sums) {
		return fmt.Errorf("script returned %v", response)
	}
	for i := range sums {
		v := response[1+3*i:]
		sums[i].Result = added{before: v[0], start: v[1], now: response[0], id: v[2]}
		switch v[0] {
		case -1:
			sums[i].Err = errAlone
		case -2:
			sums[i].Err = errHalf
		}
	}
	return nil
}
