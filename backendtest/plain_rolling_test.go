package backendtest_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

// rollingPlain is the simplest backend with a rolling algorithm. It is correct, unless it has a fault.
type rollingPlain struct {
	algorithm window.Algorithm
	maxLimit  uint64
	refuses   bool          // an Inc beyond maxLimit fails
	coarse    time.Duration // the resolution of the clock; a token takes a multiple of it
	fault     fault
	closed    atomic.Bool

	mu      clockMutex // guards what follows
	windows map[plainID]*rollingHits
	takes   map[int64]rollingTake // of token buckets
	last    int64                 // number of the hits or window that were made last
}

// rollingTake is a take from a token bucket.
type rollingTake struct {
	window int64
	full   *big.Rat // when the bucket was full after it, and what had been given back before
}

var (
	_ window.Taker   = (*rollingPlain)(nil)
	_ window.Peeker  = (*rollingPlain)(nil)
	_ window.Checker = (*rollingPlain)(nil)
)

// Faults of rolling algorithms.
const (
	refusedHitCounts    fault = "a hit that is refused counts"
	refusedHitOpens     fault = "a hit that is refused forgets what was counted"
	retriesEarly        fault = "RetryAfter is a nanosecond short"
	retriesLate         fault = "RetryAfter is a millisecond long"
	retriesAtEnd        fault = "RetryAfter is Left"
	retriesOfOne        fault = "RetryAfter is that of a hit of 1"
	forgetsRetry        fault = "RetryAfter is 0"
	forgetsRefused      fault = "Refused is not set"
	grantsOneMore       fault = "one more than the limit is granted"
	grantsEarly         fault = "hits are granted a nanosecond early"
	refusesTheLast      fault = "one less than the limit is granted"
	roundsCountsDown    fault = "counts are rounded down"
	endsLateRolling     fault = "ExpiresAt is a nanosecond late"
	isFixed             fault = "the limit is that of aligned windows"
	driftsAway          fault = "times are rounded down to a millisecond"
	keepsEverything     fault = "nothing comes back before a scale without hits"
	wrapsRolling        fault = "the largest numbers wrap around"
	joinsRollingNames   fault = "key and scale are concatenated, if the algorithm is a rolling one"
	joinsRollingScales  fault = "scale and key are concatenated, if the algorithm is a rolling one"
	sharesRollingScales fault = "scales share what is counted"
	cutsRollingKeys     fault = "keys are cut at 255 bytes, if the algorithm is a rolling one"
	setAddsRolling      fault = "Set adds to what was counted"
	setZeroKeeps        fault = "Set to 0 does nothing"
	resetKeeps          fault = "Reset does nothing to what was counted"
	incIsHit            fault = "Inc adds only what fits"
	zeroOpensRolling    fault = "a hit of 0 counts"
	decidesSlowly       fault = "hits are decided between reading and adding"
	keepsFirstRolling   fault = "takes before the one that is refused count"
	checksEachRolling   fault = "takes of one window are checked one by one, and not added"
	oneByOneRolling     fault = "takes of several windows are made one by one"
	takesPast           fault = "a take is granted if the limit is not reached yet"
	backNothing         fault = "GiveBack gives nothing back, but returns true"
	backTwice           fault = "GiveBack gives back twice as many"
	backToAny           fault = "GiveBack ignores which take it was"
	backAll             fault = "GiveBack gives back what has come back by itself"
	backForgets         fault = "GiveBack forgets what others have given back"
	backSlowly          fault = "GiveBack adds between reading and writing"
	backNever           fault = "GiveBack always returns false"
	peekTakes           fault = "Peek takes"
	peekForgetsRetry    fault = "Peek returns no RetryAfter"
	acceptsRollingLimit fault = "limits over the largest are accepted"
	forgetsErrRange     fault = "Check knows no largest limit"
	keepsPending        fault = "hits of a limit that is not known are never forgotten"
	wholeNanoseconds    fault = "a token takes a whole number of nanoseconds"
	overfills           fault = "a bucket holds more tokens after a long time"
	sameTokens          fault = "with another limit, as many tokens are lacking as before"
	newLimitForgets     fault = "with another limit, nothing is counted"
	wrapsSums           fault = "the sum of count and increment wraps around"
	roundsWeights       fault = "counts are floating-point numbers"
	weighsOlder         fault = "hits of two windows before count like those of the one before"
	alignsElsewhere     fault = "windows begin at multiples of the scale since some minute"
	retriesAtScale      fault = "RetryAfter of a hit over the limit is the scale"
	retriesNow          fault = "RetryAfter of a hit of 0 is 0"
	savesTime           fault = "hits less than a microsecond apart are at the same time"
	incSaturates        fault = "Inc beyond the largest count counts as many as fit, although it should fail"
)

// rollingHits is what a window of rollingPlain remembers.
type rollingHits struct {
	number int64
	limit  uint64 // of a token bucket: of the last call that named one; 0: none yet
	last   uint64 // limit of the last hit
	hits   []rollingHit
	full   *big.Rat // when a token bucket is full, in nanoseconds; nil if the limit is not known
	given  *big.Rat // how many nanoseconds were given back
}

// rollingHit is hits of n at a time.
type rollingHit struct {
	id, at int64
	n      uint64
}

func newRollingPlain(now func() time.Time, a window.Algorithm, f fault) *rollingPlain {
	return &rollingPlain{mu: clockMutex{clock: now}, algorithm: a, fault: f, maxLimit: 1 << 63, windows: map[plainID]*rollingHits{}, takes: map[int64]rollingTake{}}
}

func (p *rollingPlain) is(f fault) bool { return p.fault == f }

// Algorithm implements window.Teller.
func (p *rollingPlain) Algorithm() window.Algorithm { return p.algorithm }

func (p *rollingPlain) Close() error { p.closed.Store(true); return nil }

func (p *rollingPlain) check(ctx context.Context, scale time.Duration, limit uint64) error {
	switch {
	case window.CheckScale(scale) != nil:
		return window.CheckScale(scale)
	case limit > p.maxLimit && !p.is(acceptsRollingLimit):
		return window.ErrRange
	case p.closed.Load():
		return window.ErrClosed
	}
	return ctx.Err()
}

func (p *rollingPlain) Check(scale time.Duration, limit uint64) error {
	if p.is(forgetsErrRange) {
		return nil
	}
	return p.check(context.Background(), scale, limit)
}

func (p *rollingPlain) id(key string, scale time.Duration) plainID {
	if p.is(cutsRollingKeys) {
		key = key[:min(len(key), 255)]
	}
	switch p.fault {
	case sharesRollingScales:
		scale = time.Minute
	case joinsRollingNames:
		key, scale = fmt.Sprint(key, scale.Milliseconds()), time.Minute
	case joinsRollingScales:
		key, scale = fmt.Sprint(scale.Milliseconds())+key, time.Minute
	}
	return plainID{key, scale}
}

// copyOf returns a copy of what is remembered of a window.
func (p *rollingPlain) copyOf(id plainID) *rollingHits {
	h := p.windows[id]
	if h == nil {
		p.last++
		return &rollingHits{number: p.last, given: new(big.Rat)}
	}
	now := p.mu.now.UnixNano()
	h.hits = slices.DeleteFunc(h.hits, func(hit rollingHit) bool { return now-hit.at >= 2*int64(id.scale) })
	c := *h
	c.hits = slices.Clone(h.hits)
	return &c
}

// each returns in how many nanoseconds n of limit tokens come back.
func (p *rollingPlain) each(scale time.Duration, limit, n uint64) *big.Rat {
	r := new(big.Rat).SetFrac(big.NewInt(int64(scale)), new(big.Int).SetUint64(limit))
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

// know tells a token bucket its limit.
func (h *rollingHits) know(p *rollingPlain, scale time.Duration, limit uint64) {
	if limit == 0 || p.algorithm != window.TokenBucket {
		return
	}
	if h.full != nil && p.is(sameTokens) {
		at := new(big.Rat).SetInt64(p.mu.now.UnixNano())
		left := new(big.Rat).Sub(h.full, at)
		left.Quo(left.Mul(left, p.each(scale, limit, 1)), p.each(scale, h.limit, 1))
		h.full = at.Add(at, left)
	}
	count, _ := h.count(p, scale, p.mu.now.UnixNano())
	if h.limit = limit; h.full == nil {
		if h.full = new(big.Rat); count == 0 && !p.is(keepsPending) {
			h.hits = nil
		}
		for _, hit := range h.hits {
			h.fill(p, scale, hit)
		}
		h.hits = nil
	}
}

// fill takes the tokens of a hit.
func (h *rollingHits) fill(p *rollingPlain, scale time.Duration, hit rollingHit) {
	at := new(big.Rat).SetInt64(hit.at)
	if p.is(overfills) {
		at.SetInt64(hit.at - int64(scale))
	}
	if h.full.Cmp(at) > 0 {
		at = h.full
	}
	h.full = new(big.Rat).Add(at, p.each(scale, h.limit, hit.n))
}

// count returns the count at a time, and when it is 0.
func (h *rollingHits) count(p *rollingPlain, scale time.Duration, now int64) (n uint64, end int64) {
	s, offset := int64(scale), int64(0)
	if p.is(alignsElsewhere) {
		offset = int64(time.Minute)
	}
	if p.algorithm == window.TokenBucket && h.limit > 0 {
		left := new(big.Rat).Sub(h.full, new(big.Rat).SetInt64(now))
		if left.Sign() <= 0 {
			return 0, now
		}
		level := new(big.Rat).Quo(left, p.each(scale, h.limit, 1))
		return p.round(level), now + p.tick(int64(p.up(left)))
	}
	var previous, present, all uint64
	bucket := (now - offset) / s
	for _, hit := range h.hits {
		switch b := (hit.at - offset) / s; {
		case hit.n == 0:
		case p.algorithm == window.Sliding && b == bucket:
			present += hit.n
			end = (b+2)*s + offset
		case p.algorithm == window.Sliding && (b == bucket-1 || p.is(weighsOlder)):
			previous += hit.n
			end = max(end, (b+2)*s+offset)
		case p.algorithm != window.Sliding && now-hit.at < s:
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
func (p *rollingPlain) up(r *big.Rat) uint64 {
	n := new(big.Int).Add(r.Num(), r.Denom())
	return n.Quo(n.Sub(n, big.NewInt(1)), r.Denom()).Uint64()
}

// tick rounds a time up to the resolution of the clock.
func (p *rollingPlain) tick(t int64) int64 {
	if c := int64(p.coarse); c > 0 {
		t = (t + c - 1) / c * c
	}
	return t
}

// round rounds a count.
func (p *rollingPlain) round(r *big.Rat) uint64 {
	if p.is(roundsCountsDown) {
		return new(big.Int).Quo(r.Num(), r.Denom()).Uint64()
	}
	return p.up(r)
}

// fits reports whether n of limit fit at a time.
func (h *rollingHits) fits(p *rollingPlain, scale time.Duration, now int64, limit, n uint64) bool {
	switch p.fault {
	case grantsOneMore:
		limit++
	case refusesTheLast:
		if n > 0 {
			limit -= min(limit, 1)
		}
	case grantsEarly:
		now++
	}
	count, _ := h.count(p, scale, now)
	switch {
	case p.is(takesPast):
		return n <= limit && count < limit || n == 0 && count <= limit
	case p.is(wrapsRolling):
		return uint32(count+n) <= uint32(limit)
	case p.is(wrapsSums):
		return count+n <= limit
	}
	return n <= limit && count <= limit-n
}

// retry returns when n of limit fit, from now.
func (h *rollingHits) retry(p *rollingPlain, scale time.Duration, now int64, limit, n uint64) time.Duration {
	count, end := h.count(p, scale, now)
	left := time.Duration(end - now)
	switch {
	case count == 0 || n > limit && p.is(retriesAtScale):
		return scale
	case n == 0 && p.is(retriesNow):
		return 0
	case n > limit || p.is(retriesAtEnd):
		return left
	}
	if p.is(retriesOfOne) {
		n = 1
	}
	lower, upper := int64(0), int64(left) // it does not fit after lower, and does after upper
	for upper-lower > 1 {
		middle := (lower + upper) / 2
		if h.fits(p, scale, now+middle, limit, n) {
			upper = middle
		} else {
			lower = middle
		}
	}
	switch p.fault {
	case retriesEarly:
		return time.Duration(max(1, upper-1))
	case retriesLate:
		return time.Duration(upper) + time.Millisecond
	case forgetsRetry:
		return 0
	}
	return time.Duration(p.tick(upper))
}

// state returns the window at a time.
func (h *rollingHits) state(p *rollingPlain, scale time.Duration, now int64) (w window.Window) {
	count, end := h.count(p, scale, now)
	if w.Count = count; count > 0 {
		if p.is(endsLateRolling) {
			end++
		}
		w.ExpiresAt, w.Left, w.ID = time.Unix(0, end).UTC(), time.Duration(end-now), -1
	}
	return w
}

// add counts n.
func (p *rollingPlain) add(h *rollingHits, id plainID, n uint64) int64 {
	p.last++
	p.windows[id] = h
	hit := rollingHit{id: p.last, at: p.mu.now.UnixNano(), n: n}
	switch {
	case p.is(driftsAway):
		hit.at = hit.at / 1e6 * 1e6
	case p.is(savesTime):
		hit.at = hit.at / 1e3 * 1e3
	}
	if h.limit > 0 {
		h.fill(p, id.scale, hit)
		p.takes[hit.id] = rollingTake{h.number, new(big.Rat).Add(h.full, h.given)}
		return hit.id
	}
	if i := len(h.hits) - 1; i >= 0 && h.hits[i].at == hit.at {
		h.hits[i].n += hit.n
		return h.hits[i].id
	}
	h.hits = append(h.hits, hit)
	return hit.id
}

// pause lets other goroutines run, although the backend should not.
func (p *rollingPlain) pause() {
	p.mu.Unlock()
	for range 3 {
		runtime.Gosched()
	}
	p.mu.Lock()
}

// take makes all takes or none.
func (p *rollingPlain) take(limits []window.Limit, windows []window.Window) (granted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	granted = true
	for i, l := range limits {
		id, now := p.id(l.Key, l.Scale), p.mu.now.UnixNano()
		h := p.copyOf(id)
		if p.is(newLimitForgets) && h.last > 0 && h.last != l.Limit {
			delete(p.windows, id)
			h = p.copyOf(id)
		}
		h.know(p, l.Scale, l.Limit)
		n, _ := window.Total(limits, i)
		if p.is(checksEachRolling) {
			n = l.N
		}
		fits := h.fits(p, l.Scale, now, l.Limit, n)
		windows[i] = h.state(p, l.Scale, now)
		if fits {
			if (p.is(keepsFirstRolling) || p.is(oneByOneRolling)) && len(limits) > 1 {
				p.add(h, id, l.N)
				p.pause()
			}
			continue
		}
		granted = false
		windows[i].Refused, windows[i].RetryAfter = !p.is(forgetsRefused), h.retry(p, l.Scale, now, l.Limit, n)
		switch p.fault {
		case refusedHitCounts:
			p.add(h, id, l.N)
		case refusedHitOpens:
			delete(p.windows, id)
		}
		if p.is(oneByOneRolling) && len(limits) > 1 {
			p.pause()
			for _, l := range limits[:i] {
				delete(p.windows, p.id(l.Key, l.Scale))
			}
			return false
		}
	}
	if !granted || len(limits) > 1 && (p.is(keepsFirstRolling) || p.is(oneByOneRolling)) {
		return granted
	}
	if p.is(decidesSlowly) {
		p.pause()
	}
	for _, l := range limits {
		if h := p.windows[p.id(l.Key, l.Scale)]; h != nil {
			h.know(p, l.Scale, l.Limit)
		}
	}
	for i, l := range limits {
		id, takeID := p.id(l.Key, l.Scale), int64(0)
		if h := p.copyOf(id); l.N > 0 || p.is(zeroOpensRolling) {
			h.know(p, l.Scale, l.Limit)
			h.last = l.Limit
			takeID = p.add(h, id, l.N+map[bool]uint64{true: 1}[p.is(zeroOpensRolling) && l.N == 0])
		}
		windows[i].ID = takeID
	}
	for i, l := range limits {
		h, takeID := p.copyOf(p.id(l.Key, l.Scale)), windows[i].ID
		h.know(p, l.Scale, l.Limit)
		windows[i] = h.state(p, l.Scale, p.mu.now.UnixNano())
		windows[i].ID = takeID
	}
	return true
}

func (p *rollingPlain) Hit(ctx context.Context, key string, scale time.Duration, limit, n uint64) (window.Window, error) {
	w, _, err := p.Take(ctx, key, scale, limit, n)
	return w, err
}

func (p *rollingPlain) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (window.Window, bool, error) {
	windows := make([]window.Window, 1)
	granted, err := p.TakeAll(ctx, []window.Limit{{Key: key, Scale: scale, Limit: limit, N: n}}, windows)
	return windows[0], granted, err
}

func (p *rollingPlain) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (bool, error) {
	for _, l := range limits {
		if err := p.check(ctx, l.Scale, l.Limit); err != nil {
			return false, err
		}
	}
	if err := p.check(ctx, time.Minute, 0); err != nil {
		return false, err
	}
	return p.take(limits, windows), nil
}

func (p *rollingPlain) Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (window.Window, error) {
	if err := p.check(ctx, scale, limit); err != nil {
		return window.Window{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id, now := p.id(key, scale), p.mu.now.UnixNano()
	h := p.copyOf(id)
	h.know(p, scale, limit)
	w := h.state(p, scale, now)
	if w.Refused = !h.fits(p, scale, now, limit, n); w.Refused && !p.is(peekForgetsRetry) {
		w.RetryAfter = h.retry(p, scale, now, limit, n)
	}
	if p.is(peekTakes) && !w.Refused {
		p.add(h, id, n)
	}
	return w, nil
}

func (p *rollingPlain) Inc(ctx context.Context, key string, scale time.Duration, n uint64) (window.Window, error) {
	full := false
	w, err := p.change(ctx, key, scale, func(id plainID, h *rollingHits) {
		count, _ := h.count(p, scale, p.mu.now.UnixNano())
		if full = p.refuses && !p.is(incSaturates) && n > p.maxLimit-min(count, p.maxLimit); full {
			return
		}
		if p.is(incIsHit) {
			n = min(n, 1)
		}
		if count == 0 {
			*h = rollingHits{number: h.number, given: new(big.Rat)}
		}
		if n = min(n, p.maxLimit-min(count, p.maxLimit)); n > 0 {
			p.add(h, id, n)
		}
	})
	if full {
		return window.Window{}, window.ErrRange
	}
	return w, err
}

func (p *rollingPlain) Set(ctx context.Context, key string, scale time.Duration, n uint64) (window.Window, error) {
	return p.change(ctx, key, scale, func(id plainID, h *rollingHits) {
		if p.is(setZeroKeeps) && n == 0 {
			return
		}
		if !p.is(setAddsRolling) {
			delete(p.windows, id)
			*h = *p.copyOf(id)
		}
		if n > 0 {
			p.add(h, id, n)
		}
	})
}

func (p *rollingPlain) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	return p.change(ctx, key, scale, func(plainID, *rollingHits) {})
}

// change makes a change and returns the window after it.
func (p *rollingPlain) change(ctx context.Context, key string, scale time.Duration, f func(plainID, *rollingHits)) (w window.Window, err error) {
	if err := p.check(ctx, scale, 0); err != nil {
		return w, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.id(key, scale)
	h := p.copyOf(id)
	f(id, h)
	return h.state(p, scale, p.mu.now.UnixNano()), nil
}

func (p *rollingPlain) Reset(ctx context.Context, key string, scale time.Duration) error {
	if p.is(resetKeeps) {
		return p.check(ctx, scale, 0)
	}
	_, err := p.Delete(ctx, key, scale)
	return err
}

func (p *rollingPlain) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	for _, scale := range append([]time.Duration{time.Minute}, scales...) {
		if err := p.check(ctx, scale, 0); err != nil {
			return 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, h := range p.windows {
		if id.key == key && (len(scales) == 0 || slices.Contains(scales, id.scale)) {
			if count, _ := h.count(p, id.scale, p.mu.now.UnixNano()); count > 0 {
				n++
			}
			delete(p.windows, id)
		}
	}
	return n, nil
}

func (p *rollingPlain) GiveBack(ctx context.Context, key string, scale time.Duration, takeID int64, n uint64) (bool, error) {
	if err := p.check(ctx, scale, 0); err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id, now := p.id(key, scale), p.mu.now.UnixNano()
	h := p.copyOf(id)
	switch p.fault {
	case backNothing:
		n = 0
	case backTwice:
		n *= 2
	case backSlowly:
		p.pause()
	case backNever:
		return false, nil
	}
	if take := p.takes[takeID]; h.limit > 0 && (take.window == h.number || p.is(backToAny)) {
		p.windows[id] = h
		return h.giveTokensBack(p, scale, now, take.full, n), nil
	}
	i := slices.IndexFunc(h.hits, func(hit rollingHit) bool { return hit.id == takeID || p.is(backToAny) })
	if i < 0 {
		return false, nil
	}
	hit := &h.hits[i]
	switch {
	case p.algorithm == window.Sliding && hit.at/int64(scale) < now/int64(scale)-1:
		return false, nil
	case p.algorithm == window.SlidingLog && now-hit.at >= int64(scale):
		return false, nil
	}
	hit.n -= min(hit.n, n)
	p.windows[id] = h
	return true, nil
}

// giveTokensBack gives n tokens of a take back.
func (h *rollingHits) giveTokensBack(p *rollingPlain, scale time.Duration, now int64, full *big.Rat, n uint64) bool {
	present := new(big.Rat).SetInt64(now)
	if full == nil || h.full.Cmp(present) <= 0 {
		return false
	}
	back, left := p.each(scale, h.limit, n), new(big.Rat).Sub(full, present)
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

// startRolling returns a function that makes a backend with a rolling algorithm and a fault.
func startRolling(a window.Algorithm, f fault) func(*testing.T) backendtest.Subject {
	return func(*testing.T) backendtest.Subject {
		clock := backendtest.NewClock()
		p := newRollingPlain(clock.Now, a, f)
		p.refuses = f == incSaturates
		return backendtest.Subject{
			Backend: clientOf(p, f), Second: clientOf(p, f), Clock: clock, Algorithm: a, MaxCount: p.maxLimit, RefusesInc: p.refuses,
			Close: func() { p.Close() },
		}
	}
}

var rollingAlgorithms = []window.Algorithm{window.TokenBucket, window.Sliding, window.SlidingLog}

func TestCorrectRollingBackendsPass(t *testing.T) {
	for _, a := range rollingAlgorithms {
		t.Run(a.String(), func(t *testing.T) { backendtest.Run(t, startRolling(a, none)) })
	}
}

// TestBoundedRollingBackendsPass has a backend with small counts, long scales and a coarse clock.
func TestBoundedRollingBackendsPass(t *testing.T) {
	for _, a := range rollingAlgorithms {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(*testing.T) backendtest.Subject {
				clock, coarse := backendtest.NewClock(), time.Microsecond
				p := newRollingPlain(func() time.Time { return clock.Now().Truncate(coarse) }, a, none)
				p.maxLimit, p.refuses, p.coarse = 200, true, coarse
				return backendtest.Subject{
					Backend: p, Clock: clock, Algorithm: a, MaxCount: p.maxLimit, RefusesInc: true,
					Exact: coarse, RoundsTokens: true, MinScale: time.Second,
				}
			})
		})
	}
}

// TestBrokenRollingBackendOfAnotherProcess is run by TestRollingFaultsAreFound in a process of its own.
// Otherwise it does nothing.
func TestBrokenRollingBackendOfAnotherProcess(t *testing.T) {
	for _, a := range rollingAlgorithms {
		if f, ok := strings.CutPrefix(os.Getenv(faultVariable), a.String()+": "); ok {
			backendtest.Run(t, startRolling(a, fault(f)))
		}
	}
}

func TestRollingFaultsAreFound(t *testing.T) {
	bucket, sliding, log := rollingAlgorithms[:1], rollingAlgorithms[1:2], rollingAlgorithms[2:]
	for _, test := range []struct {
		subtest    string // that must find the faults; others may find them too
		algorithms []window.Algorithm
		faults     []fault
	}{
		{"rolling: vectors", rollingAlgorithms, []fault{
			refusedHitCounts, retriesEarly, retriesLate, retriesAtEnd, retriesOfOne, forgetsRetry, forgetsRefused, grantsOneMore, refusesTheLast,
			endsLateRolling, setAddsRolling, setZeroKeeps, resetKeeps, incIsHit, zeroOpensRolling, backNothing, backTwice, backNever,
			grantsEarly, sharesRollingScales, newLimitForgets, retriesAtScale, retriesNow, peekTakes, peekForgetsRetry,
		}},
		{"rolling: vectors", bucket, []fault{
			driftsAway, roundsCountsDown, backAll, keepsPending, wholeNanoseconds, overfills, sameTokens, wrapsRolling, wrapsSums,
		}},
		{"rolling: vectors", sliding, []fault{
			roundsCountsDown, keepsEverything, isFixed, weighsOlder, alignsElsewhere, roundsWeights, wrapsRolling, wrapsSums,
		}},
		{"rolling: vectors", log, []fault{isFixed, savesTime, backToAny}},
		{"rolling: a hit that is refused changes nothing", rollingAlgorithms, []fault{refusedHitCounts, refusedHitOpens, forgetsRetry, forgetsRefused, zeroOpensRolling}},
		{"rolling: a caller who waits RetryAfter is admitted", rollingAlgorithms, []fault{retriesEarly, retriesLate, retriesOfOne, grantsEarly}},
		{"rolling: a caller who waits RetryAfter is admitted", bucket, []fault{retriesAtEnd}},
		{"rolling: the limit holds in every interval", rollingAlgorithms, []fault{grantsOneMore}},
		{"rolling: the limit holds in every interval", bucket, []fault{driftsAway}},
		{"rolling: the limit holds in every interval", sliding, []fault{isFixed}},
		{"rolling: the limit holds in every interval", log, []fault{isFixed}},
		{"rolling: keys and scales are independent", rollingAlgorithms, []fault{sharesRollingScales, joinsRollingNames, joinsRollingScales, cutsRollingKeys}},
		{"rolling: Set, Reset and Delete forget what was counted", rollingAlgorithms, []fault{setAddsRolling, setZeroKeeps, resetKeeps, incIsHit}},
		{"rolling: numbers can be large", rollingAlgorithms, []fault{wrapsRolling, wrapsSums, incSaturates}},
		{"rolling: a limit over MaxCount is refused with window.ErrRange", rollingAlgorithms, []fault{acceptsRollingLimit, forgetsErrRange}},
		{"rolling: concurrent hits are granted up to the limit", rollingAlgorithms, []fault{decidesSlowly, grantsOneMore, refusesTheLast}},
		{"rolling: concurrent calls of all methods leave nothing behind", rollingAlgorithms, []fault{sharesRollingScales}},
		{"rolling: random calls agree with a model", rollingAlgorithms, []fault{
			refusedHitCounts, refusedHitOpens, grantsOneMore, refusesTheLast, endsLateRolling, setAddsRolling, resetKeeps, incIsHit,
			takesPast, backTwice,
		}},
		{"rolling: random calls agree with a model", bucket, []fault{roundsCountsDown}},
		{"rolling: random calls agree with a model", sliding, []fault{roundsCountsDown, isFixed}},
		{"rolling: random calls agree with a model", log, []fault{isFixed}},
		{"rolling: a take is a hit", rollingAlgorithms, []fault{takesPast, zeroOpensRolling, forgetsRetry}},
		{"rolling: takes of several windows are granted all or none", rollingAlgorithms, []fault{keepsFirstRolling, refusedHitCounts}},
		{"rolling: several takes of one window count as their sum", rollingAlgorithms, []fault{checksEachRolling}},
		{"rolling: what is given back can be taken again, once", rollingAlgorithms, []fault{backNothing, backTwice, backNever}},
		{"rolling: what is given back can be taken again, once", log, []fault{backToAny}},
		{"rolling: nothing is given back after Set and Reset", rollingAlgorithms, []fault{backToAny}},
		{"rolling: what has come back by itself is not given back", bucket, []fault{backAll, backTwice}},
		{"rolling: a second give-back gives nothing back that has come back by itself", bucket, []fault{backForgets, backAll}},
		{"rolling: concurrent takes and give-backs leave what is held", rollingAlgorithms, []fault{backTwice}},
		{"rolling: concurrent takes and give-backs leave what is held", sliding, []fault{backSlowly}},
		{"rolling: concurrent takes and give-backs leave what is held", log, []fault{backSlowly}},
		{"rolling: of takes in opposite order one is granted", rollingAlgorithms, []fault{oneByOneRolling}},
		{"rolling: Peek tells what a take would return", rollingAlgorithms, []fault{peekTakes, peekForgetsRetry}},
		{"rolling: random calls of two clients agree with a model", rollingAlgorithms, []fault{remembersFull}},
		{"rolling: random calls of two clients agree with a model", log, []fault{losesOfTwo}},
		{"rolling: calls of two clients at once leave what is held", sliding, []fault{remembersFull, backTwice}},
		{"rolling: calls of two clients at once leave what is held", log, []fault{remembersFull, backTwice}},
	} {
		for _, a := range test.algorithms {
			for _, f := range test.faults {
				f := a.String() + ": " + string(f)
				t.Run(f+"/"+test.subtest, func(t *testing.T) {
					mustFail(t, "TestBrokenRollingBackendOfAnotherProcess", test.subtest, f)
				})
			}
		}
	}
}
