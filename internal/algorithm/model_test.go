package algorithm

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// model is an algorithm in the simplest form: it remembers all takes, and computes with numbers of any size.
type model struct {
	a     window.Algorithm
	scale *big.Int
	max   *big.Int // of the last call, of a bucket: the rate at which it is paid
	now   *big.Int
	takes []modelTake // the oldest first
	backs int         // how often something has been given back since the model was empty
}

// modelTake is a take. Of a token bucket, left is tokens times nanoseconds.
type modelTake struct {
	id    int64
	at    *big.Int
	left  *big.Int
	held  *big.Int // what has not been given back, though it may have come back by itself
	backs int      // of the model when it was made
}

func num(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

func (m *model) bucket() bool { return m.a == window.TokenBucket }

// index returns the number of the aligned window of a time.
func (m *model) index(at *big.Int) *big.Int { return new(big.Int).Div(at, m.scale) }

// advance sets the time, and forgets takes that are over.
func (m *model) advance(now *big.Int) {
	if m.bucket() {
		due := new(big.Int).Mul(new(big.Int).Sub(now, m.now), m.max)
		for len(m.takes) > 0 && due.Sign() > 0 {
			paid := m.takes[0].left
			if paid.Cmp(due) > 0 {
				paid = new(big.Int).Set(due)
			}
			due.Sub(due, paid)
			m.takes[0].left = new(big.Int).Sub(m.takes[0].left, paid)
			if m.takes[0].left.Sign() == 0 {
				m.takes = m.takes[1:]
			}
		}
	}
	m.now = now
	for len(m.takes) > 0 && !m.bucket() && m.end(m.takes[0]).Cmp(now) <= 0 {
		m.takes = m.takes[1:]
	}
	if len(m.takes) == 0 {
		m.backs = 0
	}
}

// end returns when a take does not count any more, if it is not one of a bucket.
func (m *model) end(take modelTake) *big.Int {
	windows := int64(1)
	switch m.a {
	case window.FixedWindow, window.SlidingLog:
		return new(big.Int).Add(take.at, m.scale)
	case window.SlidingWindow:
		windows = 2
	}
	return new(big.Int).Mul(new(big.Int).Add(m.index(take.at), big.NewInt(windows)), m.scale)
}

// count returns what counts, rounded up, at most the largest count.
func (m *model) count() uint64 {
	sum := new(big.Int) // times scale
	for _, take := range m.takes {
		part := new(big.Int).Mul(take.left, m.scale)
		switch {
		case m.bucket():
			part = take.left
		case m.a == window.SlidingWindow && m.index(take.at).Cmp(m.index(m.now)) < 0:
			part = new(big.Int).Mul(take.left, new(big.Int).Sub(m.end(take), m.now))
		}
		sum.Add(sum, part)
	}
	sum.Add(sum, m.scale).Sub(sum, big.NewInt(1)).Div(sum, m.scale)
	if !sum.IsUint64() || sum.Uint64() > window.Unlimited {
		return window.Unlimited
	}
	return sum.Uint64()
}

// left returns in which time nothing counts, at most the longest.
func (m *model) left() time.Duration {
	left := new(big.Int)
	for _, take := range m.takes {
		switch {
		case m.bucket():
			left.Add(left, take.left)
		case take.left.Sign() > 0 || m.a == window.FixedWindow || m.a == window.AlignedWindow:
			left.Sub(m.end(take), m.now)
		}
	}
	if m.bucket() && left.Sign() > 0 {
		left.Add(left, m.max).Sub(left, big.NewInt(1)).Div(left, m.max)
	}
	if !left.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(left.Int64())
}

func (m *model) add(id int64, n *big.Int) {
	at := m.now
	if m.a == window.FixedWindow && len(m.takes) > 0 {
		at = m.takes[0].at // that has opened the window
	}
	m.takes = append(m.takes, modelTake{id: id, at: at, left: n, held: n, backs: m.backs})
}

// owed returns what a bucket owes.
func (m *model) owed() *big.Int {
	sum := new(big.Int)
	for _, take := range m.takes {
		sum.Add(sum, take.left)
	}
	return sum
}

// clone returns a copy that can be advanced.
func (m *model) clone() *model {
	c := *m
	c.takes = append([]modelTake(nil), m.takes...)
	return &c
}

// subject is a record, and its model.
type subject struct {
	t      *testing.T
	rule   Rule
	record Record
	model  *model
	series uint64
	next   func(n uint64) uint64 // less than n
}

// numbers of limits and takes.
var numbers = []uint64{1, 2, 3, 10, 1000, 1e10, 1<<31 + 11, 1 << 62, math.MaxInt64 - 1}

func newSubject(t *testing.T, next func(n uint64) uint64) *subject {
	a := window.FixedWindow + window.Algorithm(next(5))
	scale := []time.Duration{window.MinScale, time.Second, time.Second + 7, time.Hour, window.MaxScale - 1, window.MaxScale}[next(6)]
	s := &subject{t: t, next: next}
	s.rule = RuleOf(&window.Limit{Scale: scale, Algorithm: a})
	s.limit()
	now := new(big.Int).Mul(num(next(1<<33)), big.NewInt(1e9))
	s.model = &model{a: a, scale: big.NewInt(int64(scale)), max: num(s.rule.Max), now: now.Add(now, num(next(1e9)))}
	return s
}

// limit changes the limit.
func (s *subject) limit() {
	s.rule.Max = numbers[s.next(uint64(len(numbers)))]
	if s.rule.How.Logs {
		s.rule.Max = min(s.rule.Max, 1000)
	}
	s.rule.Burst = 0
	if s.rule.How.refills && s.next(2) == 0 {
		s.rule.Burst = numbers[s.next(uint64(len(numbers)))]
	}
}

// time returns the time of the model, whose nanoseconds wrap around.
func (s *subject) time() Time {
	sec, nano := new(big.Int).DivMod(s.model.now, big.NewInt(1e9), new(big.Int))
	low := new(big.Int).And(s.model.now, num(math.MaxUint64))
	return Time{Now: int64(low.Uint64()), Last: &Reading{int64(low.Uint64()), time.Unix(sec.Int64(), nano.Int64())}}
}

// advance advances the clock by a part of the scale, or by some scales, but by no more than the longest: what is over
// for 292 years may be found to be ahead.
func (s *subject) advance() {
	scale := uint64(s.rule.Scale)
	d := []uint64{0, 0, 1, s.next(1 + scale/1000), s.next(scale), scale - 1, scale, 3 * scale / 2}[s.next(8)]
	s.model.advance(new(big.Int).Add(s.model.now, num(min(d, uint64(window.MaxScale)))))
}

// step makes a random call, and compares the result with the model's.
func (s *subject) step() {
	s.advance()
	if s.next(8) == 0 {
		s.limit()
	}
	n := []uint64{0, 1, 1, 1, s.next(1 + s.rule.Capacity()), s.next(1 + s.rule.Capacity()/8), s.rule.Capacity(), s.rule.Capacity() + 1}[s.next(8)]
	s.series++
	if s.next(4) == 0 {
		s.store()
	}
	switch op := s.next(10); {
	case op < 6:
		s.take(n)
	case op < 7:
		s.charge(n)
	case op < 8:
		s.sees(s.rule.Peek(&s.record, s.time(), 0))
	default:
		s.giveBack(n)
	}
}

// store writes the record in binary form, and reads it.
func (s *subject) store() {
	var err error
	s.record, err = s.rule.How.ReadBinary(s.record.AppendBinary(nil))
	require.NoError(s.t, err)
}

// sees compares the state after a call.
func (s *subject) sees(got State) {
	s.model.max = num(s.rule.Max)
	require.Equal(s.t, s.model.count(), got.Count, "count of %+v", s.rule)
	require.Equal(s.t, s.model.left(), got.Left, "left of %+v", s.rule)
}

func (s *subject) take(n uint64) {
	before := s.model.count()
	got := s.rule.Take(&s.record, s.time(), n, s.series)
	granted := n <= s.rule.Capacity() && before <= s.rule.Capacity()-n
	require.Equal(s.t, granted, got.Wait == 0, "a take of %d with a count of %d of %+v: %+v", n, before, s.rule, got)
	if granted && n > 0 {
		s.model.add(got.ID, s.cost(n))
	}
	s.sees(got)
	switch {
	case n > s.rule.Capacity():
		require.Equal(s.t, window.Never, got.Wait)
	case !granted && got.Wait < window.Never-1:
		require.Equal(s.t, []bool{false, true}, []bool{s.fits(n, got.Wait-1), s.fits(n, got.Wait)}, "%d of %+v fit after %v", n, s.rule, got.Wait)
	case !granted:
		require.False(s.t, s.fits(n, got.Wait-1))
	}
}

// fits reports whether n would fit after a time.
func (s *subject) fits(n uint64, d time.Duration) bool {
	later := s.model.clone()
	later.advance(new(big.Int).Add(later.now, big.NewInt(int64(d))))
	return later.count() <= s.rule.Capacity()-n
}

// cost returns n as the model counts it.
func (s *subject) cost(n uint64) *big.Int {
	if s.model.bucket() {
		return new(big.Int).Mul(num(n), s.model.scale)
	}
	return num(n)
}

func (s *subject) charge(n uint64) {
	if s.rule.How.Logs {
		n = min(n, 1000)
	}
	if !s.rule.How.refills {
		n = min(n, window.Unlimited-s.model.count()) // the count stays there
	}
	got := s.rule.Charge(&s.record, s.time(), n, s.series)
	cost := s.cost(n)
	if s.model.bucket() {
		most := new(big.Int).Sub(new(big.Int).Mul(s.cost(s.rule.Capacity()), big.NewInt(2)), s.model.owed())
		if most.Sign() < 0 {
			most.SetInt64(0)
		}
		if cost.Cmp(most) > 0 {
			cost = most
			s.model.backs++ // a part of a token counts as one that was taken later
		}
	}
	if cost.Sign() > 0 || !s.rule.Algorithm.Rolling() {
		s.model.add(got.ID, cost)
	}
	s.sees(got)
}

// giveBack gives back some of a take. A bucket may give less back if others have been given back since the take.
func (s *subject) giveBack(n uint64) {
	s.sees(s.rule.Peek(&s.record, s.time(), 0))
	if r := &s.record; len(s.model.takes) == 0 || !s.model.bucket() && max(r.Count, r.More) == window.Unlimited {
		return
	}
	take := &s.model.takes[s.next(uint64(len(s.model.takes)))]
	held := take.left // takes of one window or time have one ID
	if s.model.bucket() {
		held = new(big.Int).Div(take.held, s.model.scale)
	}
	if num(n).Cmp(held) > 0 {
		n = held.Uint64()
	}
	want := s.cost(n)
	if want.Cmp(take.left) > 0 {
		want = take.left
	}
	before := s.record.debt().big()
	ok := s.rule.GiveBack(&s.record, s.time(), take.id, n)
	given := want
	if s.model.bucket() {
		given = before.Sub(before, s.record.debt().big())
		require.LessOrEqual(s.t, given.Cmp(want), 0, "%v are given back of %v", given, want)
		if take.backs == s.model.backs {
			require.Zero(s.t, given.Cmp(want), "%v are given back, want %v", given, want)
		}
	} else {
		require.True(s.t, ok)
	}
	take.left = new(big.Int).Sub(take.left, given)
	take.held = new(big.Int).Sub(take.held, s.cost(n))
	s.model.backs++
	s.model.forget()
	s.sees(s.rule.Peek(&s.record, s.time(), 0))
}

// forget forgets takes that have been given back, except in a fixed window, which stays open.
func (m *model) forget() {
	kept := m.takes[:0:0]
	for _, take := range m.takes {
		if take.left.Sign() > 0 || m.a == window.FixedWindow || m.a == window.AlignedWindow {
			kept = append(kept, take)
		}
	}
	m.takes = kept
}

func (d debt) big() *big.Int {
	return new(big.Int).Add(new(big.Int).Lsh(num(d.hi), 64), num(d.lo))
}

func TestAlgorithmsAgreeWithAModelInExactArithmetic(t *testing.T) {
	for seed := range uint64(600) {
		s := newSubject(t, rand.New(rand.NewPCG(seed, 1)).Uint64N)
		for range 150 {
			if s.step(); t.Failed() {
				t.Fatalf("seed %d, %v", seed, s.model.a)
			}
		}
	}
}

func FuzzAlgorithmsAgreeWithAModelInExactArithmetic(f *testing.F) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n uint64) uint64 {
			var number [8]byte
			size := 1
			if n > math.MaxUint8 {
				size = 8
			}
			data = data[copy(number[:size], data):]
			return binary.LittleEndian.Uint64(number[:]) % n
		}
		s := newSubject(t, next)
		for range 300 {
			if len(data) > 0 {
				s.step()
			}
		}
	})
}
