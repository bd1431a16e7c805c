package backendtest_test

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

// rollingHits is what plain remembers of a window of a rolling algorithm.
type rollingHits struct {
	number int64
	max    uint64 // of the last call
	hits   []rollingHit
	full   *big.Rat // when a token bucket is full, in nanoseconds
	given  *big.Rat // how many nanoseconds were given back
}

// rollingHit is hits of n at a time.
type rollingHit struct {
	id, at int64
	n      uint64
}

// bucketTake is a take from a token bucket.
type bucketTake struct {
	window int64
	full   *big.Rat // when the bucket was full after it, and what had been given back before
}

// known returns what is remembered of a window. p.mu is held.
func (p *plain) known(id plainID, l window.Limit) *rollingHits {
	h := p.rolling[id]
	if h == nil || p.is(newLimitForgets) && h.max != l.Max {
		return &rollingHits{max: l.Max, full: new(big.Rat), given: new(big.Rat)}
	}
	if !p.is(sameTime) && h.max != l.Max && l.Max > 0 {
		at, before := new(big.Rat).SetInt64(p.mu.now.UnixNano()), l
		before.Max = h.max
		left := new(big.Rat).Sub(h.full, at)
		left.Quo(left.Mul(left, p.each(l, 1)), p.each(before, 1))
		h.full, h.max = at.Add(at, left), l.Max
	}
	return h
}

// each returns in how many nanoseconds n tokens come back.
func (p *plain) each(l window.Limit, n uint64) *big.Rat {
	r := new(big.Rat).SetFrac(big.NewInt(int64(l.Scale)), new(big.Int).SetUint64(max(1, l.Max)))
	switch {
	case p.is(driftsAway):
		f, _ := r.Float64()
		r.SetInt64(int64(f) / 1e6 * 1e6)
	case p.is(wholeNanoseconds):
		r.SetUint64(p.up(r))
	case p.coarse > 0: // rounded up to a part
		parts := new(big.Rat).SetFrac64(1<<20, int64(p.coarse))
		r.SetUint64(p.up(r.Mul(r, parts)))
		r.Quo(r, parts)
	}
	return r.Mul(r, new(big.Rat).SetUint64(n))
}

// count returns the count at a time, and when it is 0.
func (h *rollingHits) count(p *plain, l window.Limit, now int64) (n uint64, end int64) {
	s, offset := int64(l.Scale), int64(0)
	if p.is(alignsElsewhere) {
		offset = int64(time.Minute)
	}
	if l.Algorithm == window.TokenBucket {
		left := new(big.Rat).Sub(h.full, new(big.Rat).SetInt64(now))
		if left.Sign() <= 0 {
			return 0, now
		}
		level := new(big.Rat).Quo(left, p.each(l, 1))
		return p.round(level), now + p.tick(int64(p.up(left)))
	}
	var previous, present, all uint64
	bucket := (now - offset) / s
	for _, hit := range h.hits {
		switch b := (hit.at - offset) / s; {
		case hit.n == 0:
		case l.Algorithm == window.SlidingWindow && b == bucket:
			present += hit.n
			end = (b+2)*s + offset
		case l.Algorithm == window.SlidingWindow && (b == bucket-1 || p.is(weighsOlder)):
			previous += hit.n
			end = max(end, (b+2)*s+offset)
		case l.Algorithm == window.SlidingLog && now-hit.at < s:
			all += hit.n
			end = hit.at + s
		}
	}
	if p.is(keepsEverything) && end > now {
		return previous + present + all, end
	}
	if p.is(isFixed) {
		all = 0
		for _, hit := range h.hits {
			if hit.at/s == now/s {
				all += hit.n
			}
		}
		return all, (now/s + 1) * s
	}
	weighted := new(big.Rat).SetFrac64(s-(now-offset)%s, s)
	if p.is(roundsWeights) {
		part, _ := weighted.Float64()
		return uint64(math.Ceil(float64(previous)*part)) + present + all, end
	}
	return p.round(weighted.Mul(weighted, new(big.Rat).SetUint64(previous))) + present + all, end
}

// up rounds up to a whole number.
func (p *plain) up(r *big.Rat) uint64 {
	n := new(big.Int).Add(r.Num(), r.Denom())
	return n.Quo(n.Sub(n, big.NewInt(1)), r.Denom()).Uint64()
}

// tick rounds a time up to the resolution of the clock.
func (p *plain) tick(t int64) int64 {
	if c := int64(p.coarse); c > 0 {
		t = (t + c - 1) / c * c
	}
	return t
}

// round rounds a count.
func (p *plain) round(r *big.Rat) uint64 {
	if p.is(roundsCountsDown) {
		return new(big.Int).Quo(r.Num(), r.Denom()).Uint64()
	}
	return p.up(r)
}

// addRolling counts n, and returns the ID of the take. p.mu is held.
func (p *plain) addRolling(id plainID, l window.Limit, n uint64) int64 {
	if n == 0 {
		if !p.is(zeroCounts) {
			return 0
		}
		n = 1
	}
	h := p.known(id, l)
	if p.last++; h.number == 0 {
		h.number = p.last
	}
	p.last++
	p.rolling[id], h.max = h, l.Max
	now := p.mu.now.UnixNano()
	h.hits = slices.DeleteFunc(h.hits, func(hit rollingHit) bool { return now-hit.at >= 2*int64(id.scale) })
	hit := rollingHit{id: p.last, at: now, n: n}
	switch {
	case p.is(driftsAway):
		hit.at = hit.at / 1e6 * 1e6
	case p.is(savesTime):
		hit.at = hit.at / 1e3 * 1e3
	}
	if l.Algorithm == window.TokenBucket {
		h.fill(p, l, hit)
		p.takes[hit.id] = bucketTake{h.number, new(big.Rat).Add(h.full, h.given)}
		return hit.id
	}
	if i := len(h.hits) - 1; i >= 0 && h.hits[i].at == hit.at {
		h.hits[i].n += hit.n
		return h.hits[i].id
	}
	h.hits = append(h.hits, hit)
	return hit.id
}

// fill takes the tokens of a hit.
func (h *rollingHits) fill(p *plain, l window.Limit, hit rollingHit) {
	at := new(big.Rat).SetInt64(hit.at)
	if p.is(overfills) {
		at.SetInt64(hit.at - int64(l.Scale))
	}
	if h.full.Cmp(at) > 0 {
		at = h.full
	}
	h.full = new(big.Rat).Add(at, p.each(l, hit.n))
}

// giveRollingBack gives back n of a take. p.mu is held.
func (p *plain) giveRollingBack(id plainID, l window.Limit, n uint64, takeID int64) bool {
	h, now := p.known(id, l), p.mu.now.UnixNano()
	if take := p.takes[takeID]; l.Algorithm == window.TokenBucket {
		return (take.window == h.number && h.number > 0 || p.is(givesBackToAny)) && h.giveTokensBack(p, l, now, take.full, n)
	}
	i := slices.IndexFunc(h.hits, func(hit rollingHit) bool { return hit.id == takeID || p.is(givesBackToAny) })
	if i < 0 {
		return false
	}
	hit := &h.hits[i]
	if l.Algorithm == window.SlidingWindow && hit.at/int64(l.Scale) < now/int64(l.Scale)-1 || l.Algorithm == window.SlidingLog && now-hit.at >= int64(l.Scale) {
		return false
	}
	left := hit.n - min(hit.n, n)
	if p.is(givesBackSlowly) {
		p.pause()
	}
	hit.n = left
	return true
}

// giveTokensBack gives n tokens of a take back.
func (h *rollingHits) giveTokensBack(p *plain, l window.Limit, now int64, full *big.Rat, n uint64) bool {
	present := new(big.Rat).SetInt64(now)
	if full == nil || h.full.Cmp(present) <= 0 {
		return false
	}
	back, left := p.each(l, n), new(big.Rat).Sub(full, present)
	if !p.is(backForgets) {
		left.Sub(left, h.given)
	}
	if left.Cmp(back) < 0 && !p.is(backAll) {
		back = left
	}
	if back.Sign() <= 0 {
		return n == 0
	}
	h.full, h.given = new(big.Rat).Sub(h.full, back), new(big.Rat).Add(h.given, back)
	return true
}
