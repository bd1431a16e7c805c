package rediswindow

import (
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

// errAlone says that a hit was not counted, because something is wrong with its window, or its hash has
// many fields. A request of its own with another script tells what, or counts it.
var errAlone = errors.New("the hit must be sent alone")

// errHalf says that a window was opened, but not all that belongs to it was done.
var errHalf = errors.New("the hit was counted, but the end of its window could not be set: may the user of Redis run PTTL and PEXPIRE?")

// slots is the number of slots of a cluster.
const slots = 16384

// windowKey identifies a window.
type windowKey struct {
	key, name string
	scale     time.Duration
	algorithm window.Algorithm
}

func (k *windowKey) limit() window.Limit {
	return window.Limit{Name: k.name, Scale: k.scale, Algorithm: k.algorithm}
}

// added is what a script has found that added to a window. Times are in microseconds since 1970.
type added struct {
	before         int64 // the count before
	start, now, id int64
}

type (
	sum      = coalesce.Sum[windowKey, added]
	combiner = coalesce.Combiner[windowKey, added]
)

// newCombiner returns what lets hits share requests. In a cluster, a request accesses one slot.
func (b *Backend) newCombiner() *combiner {
	partitions := 1
	if cluster, _ := b.client.Cluster(); cluster {
		partitions = slots
	}
	return coalesce.NewCombiner(coalesce.CombinerOptions[windowKey, added]{
		Add: b.addAll, Partitions: partitions, MaxHits: maxHits, MaxInFlight: maxInFlight, MaxQueued: b.maxQueued,
	})
}

// add adds n to a window. It also reports whether the count would have passed [MaxCount].
func (b *Backend) add(ctx context.Context, key string, l *window.Limit, n uint64) (w window.Window, full bool, err error) {
	cluster, err := b.cluster()
	if err != nil {
		return w, false, err
	}
	partition := 0
	if cluster {
		partition = int(slotOf(hashTag(key)))
	}
	s, sent, err := b.combiner().Do(ctx, partition, windowKey{key, l.Name, l.Scale, l.Algorithm}, n)
	switch {
	case err == errAlone:
		if w, err = b.count(ctx, &window.Take{Key: key, Limit: *l, N: n}, MaxCount, false); err == nil || err != ctx.Err() {
			return w, w.Count == MaxCount && n > 0, err
		}
		return w, false, fmt.Errorf("%w; the hit may have been counted", err)
	case err != nil && err == ctx.Err():
		if sent {
			return w, false, fmt.Errorf("%w; the hit may have been counted", err)
		}
		return w, false, fmt.Errorf("%w; the hit was not counted", err)
	case err != nil:
		return w, false, err
	}
	r := &s.Result
	count := uint64(r.before) + min(s.Before, MaxCount+1) + n
	return opened(l.Scale, int64(min(count, MaxCount)), r.start, r.now, r.id), count > MaxCount, nil
}

// addAll adds to windows with one script, for the combiner, which bounds its requests itself. If their keys differ, it makes a script for each of them in a
// cluster, because while a slot moves to another node, a script may have only one key. That is rare: the
// keys share a slot by chance. It does so as well if a server says that they are not in one slot: what
// seems to be a server may be a proxy to several.
func (b *Backend) addAll(ctx context.Context, sums []sum) error {
	differ := slices.ContainsFunc(sums, func(s sum) bool { return s.Key.key != sums[0].Key.key })
	cluster, err := b.cluster()
	if err != nil {
		return err
	}
	if !differ || !cluster {
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
	args := append(make([]string, 0, 16), now, b.grace(), newID())
	for i := range sums {
		s := &sums[i]
		keys[i] = b.name(s.Key.key)
		last := i == len(sums)-1
		if !last && sums[i+1].N == s.N && sameField(&sums[i+1].Key, &s.Key) {
			continue
		}
		l := s.Key.limit()
		args = append(args, fieldOf(&l), strconv.FormatInt(s.Key.scale.Microseconds(), 10), strconv.FormatUint(min(s.N, MaxCount+1), 10))
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

// sameField reports whether two windows have the same field, be it of different keys.
func sameField(a, b *windowKey) bool {
	return a.scale == b.scale && a.algorithm == b.algorithm && a.name == b.name
}
