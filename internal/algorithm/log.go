package algorithm

import (
	"math"
	"slices"
	"time"
)

// A sliding log remembers the time of each take. In its record,
//   - Log has the times, and what was taken then. There is at least one.
//   - Start is the newest time.
//   - Last is a number of its series, a multiple of 2^32.
//   - ID is that of the last take: Last plus its number, of 32 bits.

var slidingLog = Algorithm{
	Logs:     true,
	count:    countLog,
	left:     leftFixed,
	wait:     waitLog,
	add:      addLog,
	giveBack: giveBackLog,
}

// smallestLog is for how many times a log first has room.
const smallestLog = 2

// Log is the times of takes, the oldest first.
type Log struct {
	times []taken
	over  int    // how many of times are over
	sum   uint64 // of what was taken, without them
}

// taken is what was taken at a time.
type taken struct {
	at     int64
	number uint32 // of the take
	n      uint32
}

// held returns the times that are not over.
func (g *Log) held() []taken { return g.times[g.over:] }

func (g *Log) empty() {
	if g != nil {
		*g = Log{times: g.times[:0]}
	}
}

// all returns the times, and none of a record without a log.
func (g *Log) all() []taken {
	if g == nil {
		return nil
	}
	return g.times
}

// Times returns for how many times a log has room, which is its memory.
func (g *Log) Times() int { return cap(g.all()) }

// needs returns for how many more times it has room after the next take: at most three times as many as it then holds.
func (g *Log) needs() int {
	room := g.Times()
	if len(g.all()) < room || room > 0 && len(g.held()) <= room-max(room/4, 1) {
		return 0
	}
	return max(room, smallestLog)
}

// Shrink gives memory back if the log uses little of its own.
func (g *Log) Shrink() {
	if g.Times() > smallestLog && len(g.held()) <= cap(g.times)/4 {
		g.resize(cap(g.times) / 2)
	}
}

// resize makes room for so many times. Those that are over need none.
func (g *Log) resize(room int) {
	kept := g.times[:0]
	if room != cap(kept) {
		kept = make([]taken, 0, room)
	}
	g.times = append(kept, g.held()...)
	g.over = 0
}

// noLaterThan makes takes after a time ones at that time.
func (g *Log) noLaterThan(now int64) {
	for i, h := range g.all() {
		if h.at-now > 0 {
			g.times[i].at = now
		}
	}
}

func countLog(r *Record, now int64) uint64 {
	g := r.Log
	for len(g.held()) > 0 && time.Duration(now-g.held()[0].at) >= r.Scale {
		g.sum -= uint64(g.times[g.over].n)
		g.over++
	}
	endLog(r)
	return g.sum
}

// endLog sets the newest time. Without one, the record ends.
func endLog(r *Record) {
	held := r.Log.held()
	if len(held) == 0 {
		r.End()
		return
	}
	r.Start = held[len(held)-1].at
}

func waitLog(r *Record, now int64, bound uint64) time.Duration {
	over := r.Log.sum - bound
	for _, h := range r.Log.held() {
		if over <= uint64(h.n) {
			return rest(uint64(r.Scale), time.Duration(now-h.at))
		}
		over -= uint64(h.n)
	}
	return 0
}

func addLog(r *Record, now int64, n, series uint64) {
	if r.ID == 0 {
		r.Last = spread(series)&^math.MaxUint32 | 1<<32
		r.ID = r.Last
	}
	now = r.Start + int64(max(r.passed(now), 0)) // the clock may have gone back
	r.Start = now
	if r.Log == nil {
		r.Log = &Log{}
	}
	g := r.Log
	if len(g.times) == cap(g.times) {
		g.resize(cap(g.times) + g.needs())
	}
	g.sum += n
	if held := g.held(); len(held) > 0 {
		if newest := &held[len(held)-1]; newest.at == now && newest.number == uint32(r.ID) {
			newest.n += uint32(n)
			return
		}
	}
	number := uint32(r.ID) + 1
	r.ID = r.Last | int64(number)
	g.times = append(g.times, taken{now, number, uint32(n)})
}

func giveBackLog(r *Record, id int64, n uint64) bool {
	if id&^math.MaxUint32 != r.Last {
		return false
	}
	held := r.Log.held()
	i, found := slices.BinarySearchFunc(held, uint32(id), func(h taken, number uint32) int {
		return int(int32(h.number - number)) // they may wrap around
	})
	if !found {
		return false
	}
	n = min(n, uint64(held[i].n))
	r.Log.sum -= n
	if held[i].n -= uint32(n); held[i].n == 0 {
		i += r.Log.over
		r.Log.times = slices.Delete(r.Log.times, i, i+1)
	}
	endLog(r)
	return true
}
