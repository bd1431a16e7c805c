package algorithm

import (
	"math"
	"math/bits"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
)

// A token bucket owes the tokens that it lacks. What it owes is counted in tokens times nanoseconds: a token is a
// scale, and Max are paid in a nanosecond. So nothing is rounded, and the tokens stay when Max or what it holds
// changes. In its record,
//   - More and Count are the debt, of 128 bits.
//   - Start is when that was.
//   - ID is the number of tokens that have been taken since it was full, plus a number of its series.
//
// A take has the ID after it. As debts are paid in the order of takes, what has been taken since tells how much of the
// take is still owed. What others have given back is not known: the take then gives back less.

var bucket = Algorithm{
	refills:  true,
	count:    countBucket,
	left:     leftBucket,
	wait:     waitBucket,
	add:      addBucket,
	giveBack: giveBackBucket,
}

// debt is tokens times nanoseconds.
type debt struct{ hi, lo uint64 }

func (r *Record) debt() debt { return debt{r.More, r.Count} }

// setDebt changes a debt. Without one, the bucket is full, and its record ends.
func (r *Record) setDebt(d debt) {
	if d == (debt{}) {
		r.End()
		return
	}
	r.More = d.hi
	r.Count = d.lo
}

// product returns x times y.
func product(x, y uint64) debt {
	hi, lo := bits.Mul64(x, y)
	return debt{hi, lo}
}

func (d debt) plus(e debt) debt {
	lo, carry := bits.Add64(d.lo, e.lo, 0)
	return debt{d.hi + e.hi + carry, lo}
}

// minus returns d less e, or 0 if that is more.
func (d debt) minus(e debt) debt {
	lo, borrow := bits.Sub64(d.lo, e.lo, 0)
	hi, borrow := bits.Sub64(d.hi, e.hi, borrow)
	if borrow != 0 {
		return debt{}
	}
	return debt{hi, lo}
}

func (d debt) more(e debt) bool { return d.hi > e.hi || d.hi == e.hi && d.lo > e.lo }

// by returns d divided by x, rounded up, or the largest int64.
func (d debt) by(x uint64) uint64 {
	if d.hi >= x {
		return math.MaxInt64
	}
	q, rest := limits.Div(d.hi, d.lo, x)
	if rest > 0 && q < math.MaxInt64 {
		q++
	}
	return min(q, math.MaxInt64)
}

func countBucket(r *Record, now int64) uint64 {
	if passed := r.passed(now); passed > 0 {
		r.Start = now
		r.setDebt(r.debt().minus(product(uint64(passed), r.Max)))
	}
	return r.debt().by(uint64(r.Scale))
}

func leftBucket(r *Record, now int64) time.Duration {
	if r.Empty() {
		return 0
	}
	return rest(r.debt().by(r.Max), r.passed(now))
}

func waitBucket(r *Record, now int64, bound uint64) time.Duration {
	return rest(r.debt().minus(product(bound, uint64(r.Scale))).by(r.Max), r.passed(now))
}

// addBucket takes n tokens. If that is a charge, the bucket then lacks at most twice what it holds, or what it has
// lacked before.
func addBucket(r *Record, _ int64, n, series uint64) {
	owed := product(n, uint64(r.Scale))
	most := product(2*r.Capacity, uint64(r.Scale)).minus(r.debt())
	if owed.more(most) {
		owed = most
		n = owed.by(uint64(r.Scale))
	}
	if r.ID == 0 {
		r.ID = spread(series)
	}
	r.setDebt(r.debt().plus(owed))
	if r.ID += int64(n); r.ID == 0 {
		r.ID = 1
	}
}

func giveBackBucket(r *Record, id int64, n uint64) bool {
	since := product(uint64(r.ID-id), uint64(r.Scale)) // what was taken later is paid last
	if !r.debt().more(since) {
		return false
	}
	left := r.debt().minus(product(n, uint64(r.Scale)))
	if since.more(left) {
		left = since
	}
	r.setDebt(left)
	return true
}
