package memory

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// exactBucket is a token bucket with rational numbers.
type exactBucket struct {
	limit uint64 // tokens per scale
	holds uint64
	scale time.Duration
}

// rat returns a/b.
func rat(a, b uint64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
}

// refill returns how long n tokens take to come back, in nanoseconds.
func (b exactBucket) refill(n uint64) *big.Rat {
	return new(big.Rat).Mul(rat(n, b.limit), rat(uint64(b.scale), 1))
}

// full returns when the bucket of e is full.
func (b exactBucket) full(e *state, now int64) *big.Rat {
	if e.isNew() || !e.fills(now) {
		return new(big.Rat).SetInt64(now)
	}
	full := new(big.Rat).SetInt64(e.start)
	full.Add(full, rat(uint64(b.scale), 1))
	return full.Sub(full, rat(e.excess(), parts(b.limit)))
}

// ceil returns the least whole number that is not less than x, which is not negative.
func ceil(x *big.Rat) uint64 {
	n := new(big.Int).Add(x.Num(), x.Denom())
	n.Sub(n, big.NewInt(1))
	return n.Quo(n, x.Denom()).Uint64()
}

// anyLimit returns a random limit of any size.
func anyLimit(random *rand.Rand, bits int) uint64 {
	return 1 + random.Uint64N(math.MaxUint64)>>(64-1-random.IntN(bits))
}

// anyBucket returns a random bucket that fills in less than 2^61 ns.
func anyBucket(random *rand.Rand, bits, scaleBits int) exactBucket {
	for {
		b := exactBucket{limit: anyLimit(random, bits), scale: window.MinScale + time.Duration(anyLimit(random, scaleBits))}
		if b.holds = b.limit; random.IntN(2) == 0 {
			b.holds = anyLimit(random, bits)
		}
		if b.refill(b.holds).Cmp(rat(1<<61, 1)) < 0 {
			return b
		}
	}
}

// Nothing is rounded for limits up to maxParts, and above it only against the caller, by less than a part
// of a nanosecond for each take.
func TestTokenBucketAgreesWithRationalNumbers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	granted, inexact := 0, 0
	for range 300 {
		b := anyBucket(random, 63, 61)
		r := rule{b.limit, b.holds}
		e, now, gen := state{scale: b.scale}, int64(0), uint64(1)
		for range 100 {
			if !e.isNew() && !e.fills(now) {
				e = state{scale: b.scale}
			}
			n := 1 + random.Uint64N(1+b.holds/uint64(1+random.IntN(10)))
			before := b.full(&e, now)
			after := new(big.Rat).Add(before, b.refill(n))
			latest := new(big.Rat).SetInt64(now)
			latest.Add(latest, b.refill(b.holds))
			fits := n <= b.holds && after.Cmp(latest) <= 0
			was := e
			v := e.takeTokens(now, r, n)
			if v.granted {
				granted++
				if b.limit <= maxParts {
					require.True(t, fits, "more is granted than fits")
				}
				gen++
				e.setGeneration(gen)
				late := new(big.Rat).Sub(b.full(&e, now), after)
				require.GreaterOrEqual(t, late.Sign(), 0, "the bucket is full too early")
				if b.limit <= maxParts {
					require.Zero(t, late.Sign())
				}
				require.Negative(t, late.Cmp(rat(1, maxParts)))
			} else {
				require.Equal(t, was, e, "a refused take changes something")
				require.Positive(t, v.wait)
				require.Equal(t, n > b.holds, v.wait == window.Never)
			}
			if b.limit <= maxParts {
				require.Equal(t, fits, v.granted)
			} else if fits != v.granted {
				inexact++
				require.LessOrEqual(t, v.wait, time.Duration(1))
			}
			level := new(big.Rat).Sub(b.full(&e, now), new(big.Rat).SetInt64(now))
			level.Mul(level, rat(b.limit, uint64(b.scale)))
			require.Equal(t, ceil(level), v.count)
			if b.limit <= maxParts {
				require.LessOrEqual(t, v.count, b.holds)
			}
			if !v.granted && n <= b.holds {
				again := e
				require.False(t, again.takeTokens(now+int64(v.wait)-1, r, n).granted, "it is granted before")
				require.True(t, again.takeTokens(now+int64(v.wait), r, n).granted, "it is not granted then")
			}
			if now > math.MaxInt64/4 {
				break
			}
			now += random.Int64N(1 + int64(b.scale)/int64(1+random.IntN(100)))
		}
	}
	require.Greater(t, granted, 5000)
	require.Less(t, inexact, granted/10)
}

// What is given back is never more than what the take still takes up, and at most a nanosecond less.
func TestTokensAreGivenBackExactly(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	type taken struct {
		id    int64
		after *big.Rat // when the bucket was full after the take
		n     uint64
	}
	back := 0
	for range 300 {
		b := anyBucket(random, 30, 45)
		r := rule{b.limit, b.holds}
		e, now := state{scale: b.scale}, int64(0)
		var takes []taken
		for range 60 {
			n := 1 + random.Uint64N(b.holds)
			if !e.fills(now) {
				e, takes = state{scale: b.scale}, nil
			}
			if e.takeTokens(now, r, n).granted {
				if e.isNew() {
					e.setGeneration(1)
				}
				takes = append(takes, taken{bucket.id(e), b.full(&e, now), n})
			}
			if now > math.MaxInt64/4 {
				break
			}
			fill, _ := r.fill(b.scale)
			now += random.Int64N(1 + int64(fill)/4)
			if len(takes) == 0 || !e.fills(now) {
				continue
			}
			i := random.IntN(len(takes))
			h := takes[i]
			takes = append(takes[:i], takes[i+1:]...)
			present := new(big.Rat).SetInt64(now)
			full, left := b.full(&e, now), new(big.Rat).Sub(h.after, present)
			ok := e.giveBackTokens(now, h.id-e.ticks(), h.n)
			if !ok {
				require.Negative(t, left.Cmp(rat(1, 1)), "nothing is given back, and %v ns are left", left)
				continue
			}
			back++
			refund := b.refill(h.n)
			if refund.Cmp(left) > 0 {
				refund = left
			}
			want := new(big.Rat).Sub(full, refund)
			if want.Cmp(present) < 0 {
				want = present
			}
			late := new(big.Rat).Sub(b.full(&e, now), want)
			require.GreaterOrEqual(t, late.Sign(), 0, "too much is given back")
			require.Negative(t, late.Cmp(rat(1, 1)), "too little is given back")
			takes = nil // what is left of them is only known up to a tick
		}
	}
	require.Greater(t, back, 1500)
}

// A bucket owes at most as much more as it holds, and exactly that.
func TestDebtOfATokenBucketIsBounded(t *testing.T) {
	for _, limit := range []uint64{1, 3, 1000, maxParts, math.MaxInt64} {
		for _, holds := range []uint64{1, limit, min(limit, math.MaxInt64/3) * 3} {
			for _, scale := range []time.Duration{window.MinScale, time.Hour, math.MaxInt64 / 8} {
				for _, now := range []int64{0, 5, -7} {
					r, e := rule{limit, holds}, state{scale: scale}
					require.True(t, e.takeTokens(now, r, 1).granted)
					e.setGeneration(1)
					for _, n := range []uint64{holds, math.MaxInt64, math.MaxInt64} {
						e.chargeTokens(now, r, n)
						require.True(t, e.fills(now), "%d %v %d", limit, scale, now)
					}
					e.setGeneration(1)
					v := e.takeTokens(now, r, 1)
					require.False(t, v.granted)
					rounded := 2 * float64(limit) / float64(scale) / maxParts // the tokens of a part
					require.InDelta(t, min(2*float64(holds), math.MaxInt64), float64(v.count), 1+float64(holds)/1e9+rounded, "%d of %d in %v", holds, limit, scale)
					require.False(t, e.takeTokens(now+int64(v.wait)-1, r, 1).granted)
					require.True(t, e.takeTokens(now+int64(v.wait), r, 1).granted)
				}
			}
		}
	}
}
