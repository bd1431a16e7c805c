package memory

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/fastpath"
	"github.com/throttr-go/throttr/window"
)

func init() {
	fastpath.Add(func(b window.Backend) *fastpath.Path {
		if m, ok := b.(*Backend); ok {
			return &fastpath.Path{Hit: m.hitCount, Take: m.takeCount, Local: true}
		}
		return nil
	})
}

// hitCount is [Backend.Hit] as a [fastpath.Call]. If the hit is within the limit of a fixed window, left may
// be up to 0.1 s too long.
//
// If the clock is read, that takes half of the time of a hit. It is read under the mutex, so
// that the order of times is the order of counts. The mutex is unlocked without a defer, which
// takes 2 ns.
func (b *Backend) hitCount(ctx context.Context, key string, by window.Algorithm, max uint64, scale time.Duration, n uint64) (
	count uint64, left, retry time.Duration, end time.Time, granted bool, err error) {
	a := &algorithms[by]
	if a.rolling {
		return b.takeCount(ctx, key, by, max, scale, n)
	}
	if err := ctx.Err(); err != nil {
		return 0, 0, 0, end, false, b.fail("hit", key, err)
	}
	var k id
	s := b.locateUnnamed(key, by, scale, &k)
	s.mu.Lock()
	s.calls++
	r := s.find(&k)
	if r == nil {
		r = s.findShared(b, &k)
	}
	var e entry
	var now int64
	if r != nil {
		e = r.entry()
		now = s.hitTime(b, &e, a.aligned, max, n)
	}
	if r != nil && e.active(now) {
		e.add(n)
		r.setCount(e.count)
	} else {
		x := access{shard: s, id: k, record: r}
		if err = x.read(b); err == nil {
			x.entry = s.addFixed(x.entry, x.now, a.aligned, n)
			err = x.store(b, n)
		}
		if err != nil {
			s.mu.Unlock()
			return 0, 0, 0, end, false, b.fail("hit", key, err)
		}
		e, now = x.entry, x.now
	}
	ends := e.end()
	left = minus(ends, now)
	if ends = int64(minus(ends, s.shift(a))); ends != s.lastEnd.nanos { // timeOf would not be inlined
		s.lastEnd = timestamp{s.reference.time.Add(minus(ends, s.reference.nanos)), ends}
	}
	end = s.lastEnd.time
	s.mu.Unlock()
	if granted = e.count <= max; !granted {
		retry = left
	}
	return e.count, left, retry, end, granted, nil
}

// takeCount is [Backend.Take] as a [fastpath.Call]. If the take is granted by a fixed window, left may be up
// to 0.1 s too long.
func (b *Backend) takeCount(ctx context.Context, key string, by window.Algorithm, max uint64, scale time.Duration, n uint64) (
	count uint64, left, retry time.Duration, end time.Time, granted bool, err error) {
	a := &algorithms[by]
	err = ctx.Err()
	if err == nil && max > a.most(b) {
		err = b.check(ctx, &window.Limit{Max: max, Scale: scale, Algorithm: by}, n)
	}
	if err != nil {
		return 0, 0, 0, end, false, b.fail("take", key, err)
	}
	var k id
	s := b.locateUnnamed(key, by, scale, &k)
	s.mu.Lock() // unlocked without a defer, like in hitCount
	s.calls++
	r := s.find(&k)
	if r == nil {
		r = s.findShared(b, &k)
	}
	var v verdict
	var now, ends int64
	ok := false
	if r != nil {
		v, now, ends, ok = a.again(b, s, r, max, n)
	}
	if !ok {
		x := access{shard: s, id: k, record: r}
		if err = x.read(b); err == nil {
			v, err = x.take(b, rule{max, max}, n)
		}
		if err != nil {
			s.mu.Unlock()
			return 0, 0, 0, end, false, b.fail("take", key, err)
		}
		now, ends = x.now, x.end()
	}
	if ends > now {
		left = minus(ends, now)
		if ends = int64(minus(ends, s.shift(a))); a.rolling && !a.aligned {
			end = s.reference.time.Add(minus(ends, s.reference.nanos))
		} else {
			end = s.timeOf(ends) // hits on a hot key return it again
		}
	}
	s.mu.Unlock()
	return v.count, left, v.wait, end, v.granted, nil
}
