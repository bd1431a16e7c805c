package algorithm

import (
	"math"
	"sort"
	"time"
)

// A sliding log remembers the time of each take. In its record,
//   - Log has the times, and what was taken then.
//   - Last is a number of its series, a multiple of 2^32.
//   - ID is that of the last take: Last plus its number, of 32 bits.

var slidingLog = Algorithm{
	Rolling:  true,
	Logs:     true,
	look:     lookLog,
	left:     leftLog,
	wait:     waitLog,
	add:      addLog,
	giveBack: giveBackLog,
}

// smallestRing is for how many times the first ring of a log has room.
const smallestRing = 2

// Log is the times of takes, in a ring, the oldest first. The first and the last take have not been given back.
type Log struct {
	ring  []taken // its length is a power of two
	first int
	n     int
	sum   uint64 // of what was taken
}

// taken is what was taken at a time.
type taken struct {
	at     int64
	number uint32 // of the take
	n      uint32
}

// at returns the i-th time.
func (g *Log) at(i int) *taken { return &g.ring[(g.first+i)&(len(g.ring)-1)] }

func (g *Log) newest() *taken { return g.at(g.n - 1) }

func (g *Log) empty() {
	g.n = 0
	g.sum = 0
}

// Times returns for how many times a log has room, which is its memory.
func (g *Log) Times() int {
	if g == nil {
		return 0
	}
	return len(g.ring)
}

// Next returns for how many times it has room after the next take, at most four times as many as it then holds.
func (g *Log) Next() int {
	switch {
	case g == nil:
		return smallestRing
	case g.n < len(g.ring):
		return len(g.ring)
	}
	held := 0 // the others were given back
	for i := range g.n {
		if g.at(i).n > 0 {
			held++
		}
	}
	if held > len(g.ring)/2 {
		return 2 * len(g.ring)
	}
	return len(g.ring)
}

// Clone returns a copy.
func (g *Log) Clone() *Log {
	if g == nil {
		return nil
	}
	c := *g
	c.ring = append([]taken(nil), g.ring...)
	return &c
}

// Shrink gives memory back if the log uses little of its own.
func (g *Log) Shrink() {
	if g != nil && len(g.ring) > smallestRing && g.n <= len(g.ring)/4 {
		g.resize(max(smallestRing, len(g.ring)/2))
	}
}

// resize makes room for so many times. Those that were given back need none.
func (g *Log) resize(length int) {
	ring := make([]taken, length)
	n := 0
	for i := range g.n {
		if h := *g.at(i); h.n > 0 {
			ring[n] = h
			n++
		}
	}
	g.ring = ring
	g.first = 0
	g.n = n
}

func lookLog(r *Record, by Rule, t Time) uint64 {
	r.Rule = by
	g := r.Log
	if r.Empty() || g.n == 0 {
		r.End()
		return 0
	}
	sinceNewest(r, t)
	for g.n > 0 && time.Duration(t.Now-g.at(0).at) >= by.Scale {
		g.sum -= uint64(g.at(0).n)
		g.first++
		g.n--
	}
	trim(r)
	return g.sum
}

// trim removes times without a take at both ends. If there are no others, the record ends.
func trim(r *Record) {
	g := r.Log
	for g.n > 0 && g.at(0).n == 0 {
		g.first++
		g.n--
	}
	for g.n > 0 && g.newest().n == 0 {
		g.n--
	}
	if g.n == 0 {
		r.End()
	}
}

// sinceNewest returns how much time has passed since the newest time. It is negative if the clock has gone back by up
// to a scale. If that is more, all later takes were made now.
func sinceNewest(r *Record, t Time) time.Duration {
	g := r.Log
	passed := time.Duration(t.Now - g.newest().at)
	if passed >= -r.Scale {
		return passed
	}
	for i := range g.n {
		if h := g.at(i); h.at-t.Now > 0 {
			h.at = t.Now
		}
	}
	return 0
}

func leftLog(r *Record, t Time) time.Duration {
	if r.Log.n == 0 {
		return 0
	}
	return rest(1, r.Scale, sinceNewest(r, t))
}

func waitLog(r *Record, t Time, room uint64) time.Duration {
	i := 0
	over := r.Log.sum - room
	for ; over > uint64(r.Log.at(i).n); i++ {
		over -= uint64(r.Log.at(i).n)
	}
	return rest(1, r.Scale, time.Duration(t.Now-r.Log.at(i).at))
}

func addLog(r *Record, t Time, n, series uint64) {
	if r.Log == nil {
		r.Log = &Log{ring: make([]taken, smallestRing)}
	}
	if r.ID == 0 {
		r.Last = logSeries(series)
		r.ID = r.Last
	}
	g := r.Log
	now := t.Now
	if g.n > 0 && g.newest().at-now > 0 {
		now = g.newest().at // the clock has gone back
	}
	g.sum += n
	if g.n > 0 && g.newest().at == now && g.newest().number == uint32(r.ID) {
		g.newest().n += uint32(n)
		return
	}
	if g.n == len(g.ring) {
		g.resize(g.Next())
	}
	number := uint32(r.ID) + 1
	r.ID = r.Last | int64(number)
	g.n++
	*g.newest() = taken{now, number, uint32(n)}
}

// logSeries returns the number of a series.
func logSeries(series uint64) int64 { return spread(series)&^math.MaxUint32 | 1<<32 }

func giveBackLog(r *Record, _ Time, id int64, n uint64) bool {
	if r.Empty() || id&^math.MaxUint32 != r.Last {
		return false
	}
	g := r.Log
	age := uint32(r.ID) - uint32(id) // how many numbers ago the take was: they may wrap around
	i := sort.Search(g.n, func(i int) bool { return uint32(r.ID)-g.at(i).number <= age })
	if i == g.n || g.at(i).number != uint32(id) {
		return false
	}
	h := g.at(i)
	n = min(n, uint64(h.n))
	h.n -= uint32(n)
	g.sum -= n
	trim(r)
	return true
}
