package rediswindow

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// rolling is how the hits of a rolling algorithm are kept in Redis. What its scripts return of a scale
// is called its state, which is an array of numbers.
type rolling interface {
	// scripts returns the scripts of the algorithm.
	scripts() *rollingScripts
	// check returns the error of a limit or an increment that the algorithm can't keep.
	check(field string, n uint64) error
	// appendTake appends the arguments of a take.
	appendTake(args []string, l *window.Limit) []string
	// taken describes what a take has left, or has found if it was not made.
	taken(l *window.Limit, made bool, now int64, state []int64) window.Window
	// wait returns after how long a take fits that does not, and is not more than its limit.
	wait(l *window.Limit, now int64, state []int64) time.Duration
	// counted describes a state.
	counted(scale time.Duration, now int64, state []int64) window.Window
}

// rollingScripts are the scripts of a rolling algorithm.
type rollingScripts struct {
	suffix string // of the names of the hashes
	size   int    // of a state after a take
	// hit is a faster take of one limit, or nil. It returns nothing but 2 if only take can do it.
	hit                                *script
	take, count, get, delete, giveBack *script
}

func newRollingScripts(suffix, source string, size int) *rollingScripts {
	make := func(action string) *script { return newScript(timeLua + rollingLua + source + storeLua + action) }
	return &rollingScripts{
		suffix: suffix, size: size,
		take: make(rollingTakeLua), count: make(rollingCountLua), get: make(rollingGetLua),
		delete: make(rollingDeleteLua), giveBack: make(rollingGiveBackLua),
	}
}

// rollingOf returns how the hits of an algorithm are kept, or nil if it has windows.
func rollingOf(o *options) rolling {
	switch o.algorithm {
	case window.TokenBucket:
		return bucket{}
	case window.Sliding:
		return sliding{}
	case window.SlidingLog:
		return log{o.maxLog}
	default:
		return nil
	}
}

// check returns the error of a limit or an increment that the algorithm can't keep.
func (b *Backend) check(field string, n uint64) error {
	if err := checkCount(field, n); err != nil || b.rolling == nil {
		return err
	}
	return b.rolling.check(field, n)
}

// hitRolling takes increment, and counts nothing if that does not fit.
func (b *Backend) hitRolling(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (w window.Window, err error) {
	if err := checkCount("increment", increment); err != nil {
		return w, err
	}
	limits, windows := [1]window.Limit{{Key: key, Scale: scale, Limit: limit, N: increment}}, [1]window.Window{}
	_, err = b.takeAll(ctx, limits[:], windows[:])
	return windows[0], err
}

// Peek implements [window.Peeker]. Its errors are those of Hit.
func (b *Backend) Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w window.Window, err error) {
	if b.rolling == nil {
		if w, err = b.read(ctx, key, scale); err == nil {
			err = b.check("limit", limit)
		}
		w.Refused = err == nil && (n > limit || w.Count > limit-n)
		return w, failed("peek", key, err)
	}
	limits, windows := [1]window.Limit{{Key: key, Scale: scale, Limit: limit, N: n}}, [1]window.Window{}
	err = b.checkTakes(ctx, limits[:])
	if err == nil {
		_, err = b.takeRolling(ctx, limits[:], windows[:], []int{0}, false)
	}
	return windows[0], failed("peek", key, err)
}

// takeRolling makes the takes of a group, all or none, or only returns what they would find.
func (b *Backend) takeRolling(ctx context.Context, limits []window.Limit, windows []window.Window, group []int, make bool) (bool, error) {
	now, err := b.time()
	if err != nil {
		return false, err
	}
	grace := ""
	if make {
		grace = b.grace()
	}
	var keys [1]string
	names, args := keys[:0], append(([]string)(nil), now, grace)
	for _, i := range group {
		names = append(names, b.name(limits[i].Key))
		args = b.rolling.appendTake(args, &limits[i])
	}
	scripts := b.rolling.scripts()
	var response []int64
	if fast := scripts.hit; fast != nil && make && len(group) == 1 && limits[group[0]].N > 0 {
		response, err = b.run(ctx, fast, names, args)
	}
	if err == nil && (len(response) == 0 || response[0] == 2) {
		response, err = b.run(ctx, scripts.take, names, args)
	}
	if err != nil {
		return false, err
	}
	if len(response) != 2+(1+scripts.size)*len(group) {
		return false, fmt.Errorf("script returned %v", response)
	}
	// Only the script decides. A take that was refused because of another one is not Refused itself.
	granted, at := response[0] == 1, response[1]
	for j, i := range group {
		l, v := &limits[i], response[2+(1+scripts.size)*j:]
		windows[i] = b.rolling.taken(l, granted && l.N > 0, at, v[1:])
		if v[0] != 1 {
			b.refuse(&windows[i], l, at, v[1:])
		}
	}
	return granted, nil
}

// sumUp returns for each of limits the index of the first one with its key and scale. It returns nil if
// no two have the same.
func sumUp(limits []window.Limit) (first []int) {
	for i := 1; i < len(limits); i++ {
		for j := range i {
			if limits[i].Key != limits[j].Key || limits[i].Scale != limits[j].Scale {
				continue
			}
			if first == nil {
				first = make([]int, len(limits))
				for k := range first {
					first[k] = k
				}
			}
			first[i] = j
			break
		}
	}
	return first
}

// takeSums takes for limits of which some have the same key and scale: first is what sumUp returns. The
// lowest of their limits applies to the sum.
func (b *Backend) takeSums(ctx context.Context, limits []window.Limit, windows []window.Window, first []int) (bool, error) {
	var sums []window.Limit
	at := make([]int, len(limits)) // the index in sums of each limit
	for i, l := range limits {
		if first[i] == i {
			at[i] = len(sums)
			sum, ok := window.Total(limits, i)
			if l.N = sum; !ok {
				l.Limit = 0 // never granted
			}
			sums = append(sums, l)
			continue
		}
		at[i] = at[first[i]]
		sums[at[i]].Limit = min(sums[at[i]].Limit, l.Limit)
	}
	left := make([]window.Window, len(sums))
	granted, err := b.takeAll(ctx, sums, left)
	for i := range limits {
		windows[i] = left[at[i]]
	}
	return granted, err
}

// countRolling counts n hits, whether they fit or not. If fresh, it forgets all others before.
func (b *Backend) countRolling(ctx context.Context, key string, scale time.Duration, n uint64, fresh bool) (w window.Window, err error) {
	field, err := fieldOf(scale)
	if err != nil {
		return w, err
	}
	now, err := b.time()
	if err != nil {
		return w, err
	}
	first, most := "0", uint64(MaxCount+1)
	if fresh {
		first = "1"
	}
	if l, ok := b.rolling.(log); ok {
		most = l.max
	}
	args := []string{field, now, b.grace(), strconv.FormatUint(n, 10), first, strconv.FormatUint(most, 10)}
	response, err := b.run(ctx, b.rolling.scripts().count, []string{b.name(key)}, args)
	if err != nil || len(response) == 0 {
		return w, err
	}
	return b.rolling.counted(scale, response[0], response[1:]), nil
}

func (b *Backend) readRolling(ctx context.Context, key, field string, scale time.Duration, now string) (w window.Window, err error) {
	response, err := b.run(ctx, b.rolling.scripts().get, []string{b.name(key)}, []string{field, now})
	if err != nil || len(response) == 0 {
		return w, err
	}
	return b.rolling.counted(scale, response[0], response[1:]), nil
}

// The ID of a take has the lower bits of a place and an epoch. The epoch changes when all hits of a key
// and scale are forgotten. The place is a time in microseconds, or a number of windows.
const (
	placeBits = 46
	epochBits = 17
)

// takeID returns the ID of a take, which is not 0.
func takeID(place, epoch int64) int64 { return (place&(1<<placeBits-1))<<epochBits | (epoch + 1) }

// giveBackRolling gives n back to a take.
func (b *Backend) giveBackRolling(ctx context.Context, key, field, now string, id int64, n uint64) (bool, error) {
	place, epoch := id>>epochBits, id&(1<<epochBits-1)-1
	if id <= 0 || epoch < 0 {
		return false, nil
	}
	args := []string{field, now, b.grace(), strconv.FormatInt(epoch, 10), strconv.FormatInt(place, 10), strconv.FormatUint(min(n, MaxCount), 10)}
	response, err := b.run(ctx, b.rolling.scripts().giveBack, []string{b.name(key)}, args)
	return len(response) == 1 && response[0] == 1, err
}

// rest describes a count of which nothing is left after a time in microseconds.
func rest(count uint64, now, end int64) window.Window {
	if count == 0 {
		return window.Window{}
	}
	return window.Window{
		Count: count, ExpiresAt: time.UnixMicro(end), Left: time.Duration(end-now) * time.Microsecond,
	}
}

// refuse makes w the window of a take that was refused.
func (b *Backend) refuse(w *window.Window, l *window.Limit, now int64, state []int64) {
	wait := l.Scale
	if l.N <= l.Limit {
		wait = b.rolling.wait(l, now, state)
	} else if w.Count > 0 {
		wait = w.Left
	}
	w.Refused, w.RetryAfter = true, max(wait, time.Microsecond)
}

// mulDiv returns a·b/c, rounded down, and whether there was a rest. The result must fit.
func mulDiv(a, b, c uint64) (q uint64, rest bool) {
	hi, lo := bits.Mul64(a, b)
	q, r := bits.Div64(hi, lo, c)
	return q, r > 0
}
