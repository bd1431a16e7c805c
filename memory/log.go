package memory

import (
	"math"
	"time"

	"github.com/throttr-go/throttr/window"
)

// A sliding log has the time of each hit that was granted and is less than a scale ago, in a chain
// of segments of the shard:
//   - start is the time of the last hit, so state.end is when the log is empty.
//   - The lower half of meta is the first segment of the chain.
//   - The higher half of count is the last segment. Below it are 29 bits with the number of times,
//     and 3 bits with the position of the first time in the first segment.
//
// A log without times has no segments.

const (
	// segmentTimes is the number of times in a segment, which is as long as a cache line.
	segmentTimes = 7
	// maxLogged is the largest number of times of a log.
	maxLogged = 1<<29 - 1
)

// slidingLog is the algorithm of sliding logs.
var slidingLog = algorithm{
	rolling: true,
	logs:    true,
	most:    func(b *Backend) uint64 { return b.maxLog },
	end:     func(e state) int64 { return e.end() },
	active:  func(e state, now int64) bool { return e.active(now) },
	count:   func(e state, _ int64) uint64 { return e.logged() },
	id:      spreadID,
	take: func(s *shard, e state, at instant, r rule, n uint64) (state, verdict) {
		return e, s.log.take(&e, at.now, r.max, n)
	},
	charge: func(s *shard, e state, _ instant, _ rule, n uint64) (state, uint64) {
		return e, min(n, s.log.longest-min(s.log.longest, e.logged()))
	},
	giveBack: func(s *shard, e state, _ instant, id int64, n uint64) (state, bool) {
		ok := s.log.giveBack(&e, id-e.spread(), n)
		return e, ok
	},
}

// spread returns the amount by which the IDs of the takes of e, which are times, are moved. It differs for
// each generation, so the ID of a take of another generation leads to a time that is not near.
func (e *state) spread() int64 { return int64(e.generation() * 0x9e3779b97f4a7c15) }

// spreadID returns the ID of a take at the start of e.
func spreadID(e state) int64 { return e.start + e.spread() }

// segment is a part of a chain.
type segment struct {
	times [segmentTimes]int64
	next  uint64 // the next segment of the chain, or of the unused ones
}

// log is the segments of a shard, whose mutex guards it.
type log struct {
	segments []segment // the first one is never used
	unused   uint32    // the first of the unused segments; 0: none
	used     int
	most     int // the largest number of segments in use

	longest uint64 // how many times one log may have
}

// newLog returns the log of a shard.
func (b *Backend) newLog() *log {
	times := max(b.maxTimes/len(b.shards), int(b.maxLog)+segmentTimes)
	return &log{segments: make([]segment, 1), most: int(min(int64((times-1)/segmentTimes)+1, math.MaxUint32-1)), longest: b.maxLog}
}

// chain is where the times of a state are.
type chain struct {
	first, last uint32
	offset      int // of the first time in the first segment
	n           int // times
}

func (e *state) chain() chain {
	return chain{uint32(e.meta), uint32(e.count >> 32), int(e.count & 7), int(e.count >> 3 & maxLogged)}
}

func (e *state) setChain(c chain) {
	e.meta = e.meta&^math.MaxUint32 | uint64(c.first)
	e.count = uint64(c.last)<<32 | uint64(c.n)<<3 | uint64(c.offset)
}

// logged returns the number of times.
func (e *state) logged() uint64 { return e.count >> 3 & maxLogged }

// segments returns the number of segments of a chain.
func (c *chain) segments() int { return (c.offset + c.n + segmentTimes - 1) / segmentTimes }

// take decides on a take of n. It does not add them: see append. The log must have been trimmed.
func (l *log) take(e *state, now int64, limit, n uint64) (v verdict) {
	c := e.chain()
	v.count = uint64(c.n)
	switch {
	case n > limit:
		v.wait = window.Never
	case v.count > limit-n: // wait until so many are left
		v.wait = e.scale - minus(now, l.nth(&c, int(v.count-(limit-n))))
	default:
		v.granted, v.changed = true, n > 0
		v.count += n
	}
	return v
}

// takeAgain makes a take of 1 from a log that has times, and a segment for another one, as is most often so.
// It returns false if it has not, and may have trimmed the log then.
func (l *log) takeAgain(r *record, now int64, limit uint64) (v verdict, end int64, ok bool) {
	e := r.state()
	c := e.chain()
	if c.n == 0 || now < e.start || !e.active(now) {
		return v, 0, false
	}
	last := &l.segments[c.last] // it is read while the first segment is
	l.trimChain(&c, now, e.scale)
	i := (c.offset + c.n) % segmentTimes
	if full := uint64(c.n) >= limit; full || i == 0 && l.used >= l.most {
		e.setChain(c)
		r.set(e)
		if !full || limit == 0 {
			return v, 0, false
		}
		v.count, v.wait = uint64(c.n), e.scale-minus(now, l.nth(&c, c.n-int(limit)+1))
		return v, e.end(), true
	}
	if i == 0 {
		at := l.allocate()
		l.segments[c.last].next = uint64(at)
		c.last, last = at, &l.segments[at]
	}
	last.times[i] = now
	c.n++
	e.start = now
	e.setChain(c)
	r.set(e)
	v.granted, v.count = true, uint64(c.n)
	return v, after(now, e.scale), true
}

// nth returns the nth time of a chain, the first of which is 1.
func (l *log) nth(c *chain, n int) int64 {
	i, at := c.offset+n-1, c.first
	for ; i >= segmentTimes; i -= segmentTimes {
		at = uint32(l.segments[at].next)
	}
	return l.segments[at].times[i]
}

// needs returns how many more segments e needs for n more times.
func (l *log) needs(e *state, n uint64) int {
	c := e.chain()
	before := c.segments()
	c.n += int(n)
	return c.segments() - before
}

// append adds n times of now to e. There must be enough segments.
func (l *log) append(e *state, now int64, n uint64) {
	if n == 0 {
		return
	}
	c := e.chain()
	if c.n == 0 {
		c = chain{}
	} else {
		now = max(now, e.start) // the clock may have gone back
	}
	for range n {
		i := (c.offset + c.n) % segmentTimes
		if i == 0 {
			at := l.allocate()
			if c.n == 0 {
				c.first = at
			} else {
				l.segments[c.last].next = uint64(at)
			}
			c.last = at
		}
		l.segments[c.last].times[i] = now
		c.n++
	}
	e.start = now
	e.setChain(c)
}

// allocate returns an unused segment.
func (l *log) allocate() uint32 {
	l.used++
	if at := l.unused; at > 0 {
		l.unused = uint32(l.segments[at].next)
		return at
	}
	l.segments = append(l.segments, segment{})
	return uint32(len(l.segments) - 1)
}

// free makes n segments from first to last unused.
func (l *log) free(first, last uint32, n int) {
	l.segments[last].next = uint64(l.unused)
	l.unused = first
	l.used -= n
}

// trim removes the times of e that are a scale or more ago.
func (l *log) trim(e *state, now int64) {
	c := e.chain()
	if c.n == 0 {
		return
	}
	if !e.active(now) {
		l.free(c.first, c.last, c.segments())
		e.setChain(chain{})
		return
	}
	l.trimChain(&c, now, e.scale)
	e.setChain(c)
}

// trimChain removes the times that are a scale or more ago from a chain. The last one is not.
func (l *log) trimChain(c *chain, now int64, scale time.Duration) {
	for minus(now, l.segments[c.first].times[c.offset]) >= scale {
		c.n--
		if c.offset++; c.offset == segmentTimes {
			next := uint32(l.segments[c.first].next)
			l.free(c.first, c.first, 1)
			c.first, c.offset = next, 0
		}
	}
}

// release makes the segments of a record unused.
func (l *log) release(r *record) {
	e := r.state()
	l.shorten(&e, e.logged())
	r.set(e)
}

// shorten removes the last n times of e.
func (l *log) shorten(e *state, n uint64) {
	c := e.chain()
	if c.n == 0 || n == 0 {
		return
	}
	kept := c
	kept.n -= int(min(n, uint64(c.n)))
	if kept.n == 0 {
		l.free(c.first, c.last, c.segments())
		e.setChain(chain{})
		e.start = int64(minus(e.start, int64(e.scale))) // the window is over
		return
	}
	if kept.last = c.first; kept.segments() < c.segments() {
		for range kept.segments() - 1 {
			kept.last = uint32(l.segments[kept.last].next)
		}
		l.free(uint32(l.segments[kept.last].next), c.last, c.segments()-kept.segments())
	} else {
		kept.last = c.last
	}
	e.start = l.segments[kept.last].times[(kept.offset+kept.n-1)%segmentTimes]
	e.setChain(kept)
}

// copy makes a copy of the times of e, and sets e to it. It returns false, and does nothing, if they would
// take more than a 64th of the segments that are free.
func (l *log) copy(e *state) bool {
	c := e.chain()
	if 64*c.segments() > l.most-l.used {
		return false
	}
	*e = l.move(l, *e)
	return true
}

// giveBack removes n of the times of e that are at. It returns false if there is none.
func (l *log) giveBack(e *state, at int64, n uint64) bool {
	c := e.chain()
	from, i := position{c.first, c.offset}, 0
	for ; i < c.n && l.time(from) != at; i++ {
		from = l.after(from)
	}
	if i == c.n {
		return false
	}
	to, removed := from, uint64(0)
	for ; i < c.n; i++ {
		if t := l.time(from); t == at && removed < n {
			removed++
		} else {
			l.segments[to.segment].times[to.i] = t
			to = l.after(to)
		}
		from = l.after(from)
	}
	l.shorten(e, removed)
	return true
}

// position is where a time is.
type position struct {
	segment uint32
	i       int
}

func (l *log) time(p position) int64 { return l.segments[p.segment].times[p.i] }

// after returns the position after p.
func (l *log) after(p position) position {
	if p.i++; p.i < segmentTimes {
		return p
	}
	return position{uint32(l.segments[p.segment].next), 0}
}

// compact frees memory if most of the segments are unused. The table has the records of all chains. The shard's
// mutex is held.
func (l *log) compact(t *table) {
	if 4*l.used >= len(l.segments) {
		return
	}
	old := *l
	*l = log{segments: make([]segment, 1, 1+l.used+l.used/4), most: l.most, longest: l.longest}
	t.all(0, len(t.records), func(r *record) bool {
		if e := r.state(); r.algorithm().logs && e.logged() > 0 {
			r.set(l.move(&old, e))
		}
		return true
	})
}

// move returns e with its times copied from another log.
func (l *log) move(from *log, e state) state {
	c := e.chain()
	e.setChain(chain{})
	for at := (position{c.first, c.offset}); c.n > 0; c.n-- {
		l.append(&e, from.time(at), 1)
		at = from.after(at)
	}
	return e
}

// log adds n times to the log of a record. It makes room for them if necessary.
func (x *access) log(b *Backend, n uint64) error {
	s := x.shard
	for s.log.used+s.log.needs(&x.state, n) > s.log.most {
		x.record.set(x.state)
		now, ref := s.now(b)
		if !s.makeRoom(b, now, ref) {
			if x.state.logged() == 0 {
				s.drop(x.record)
				x.release()
				x.state = state{scale: x.id.scale}
			}
			return b.errLogs
		}
	}
	s.log.append(&x.state, x.now, n)
	return nil
}
