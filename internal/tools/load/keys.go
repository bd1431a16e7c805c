package load

import (
	"math/bits"
	"sync"
)

// keyDigits is the number of digits at the end of a key.
const keyDigits = 12

// Sequence generates keys: a prefix and a number of 12 digits.
type Sequence struct {
	prefix      string
	first, step int // the numbers of the keys are first, first+step, …
}

// NewSequence returns the sequence of all keys with a prefix.
func NewSequence(prefix string) Sequence { return Sequence{prefix: prefix, step: 1} }

// Prefix returns what all keys begin with.
func (s Sequence) Prefix() string { return s.prefix }

// Share returns the i-th of n sequences that have no key in common.
func (s Sequence) Share(i, n int) Sequence {
	return Sequence{prefix: s.prefix, first: s.first + i*s.step, step: n * s.step}
}

// Append appends the i-th key to dst.
func (s Sequence) Append(dst []byte, i int) []byte {
	dst = append(dst, s.prefix...)
	dst = append(dst, "000000000000"[:keyDigits]...)
	s.setNumber(dst, i)
	return dst
}

// setNumber replaces the last digits of b by those of the i-th key.
func (s Sequence) setNumber(b []byte, i int) {
	n := s.first + i*s.step
	for at := len(b) - 1; at >= len(b)-keyDigits; at-- {
		b[at] = '0' + byte(n%10)
		n /= 10
	}
}

// Key returns the i-th key.
func (s Sequence) Key(i int) string { return string(s.Append(nil, i)) }

// KeySet is the first N keys of a sequence.
type KeySet struct {
	Sequence
	N int
}

// Keys returns the keys.
func (s KeySet) Keys() Keys {
	length := len(s.prefix) + keyDigits
	all := make([]byte, 0, s.N*length)
	for i := range s.N {
		all = s.Append(all, i)
	}
	return Keys{text: string(all), length: length, n: s.N}
}

// Keys are the keys of a set in memory. They are of equal length and share one string, so that
// reading one costs little even if there are millions.
type Keys struct {
	text      string
	length, n int
}

// Len returns the number of keys.
func (k Keys) Len() int { return k.n }

// At returns the i-th key.
func (k Keys) At(i int) string {
	start := i * k.length
	return k.text[start : start+k.length]
}

// Pick returns a key at random. It returns the same key for the same arguments.
func (k Keys) Pick(worker int, i uint64) string { return k.At(pick(k.n, worker, i)) }

// pick returns a number below n, the same for the same arguments. It is the finalizer of
// SplitMix64.
func pick(n, worker int, i uint64) int {
	x := uint64(worker)<<40 + i
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	number, _ := bits.Mul64(x^x>>31, uint64(n))
	return int(number)
}

// ForEach calls do with all numbers below n, in several goroutines. Each goroutine ends at its
// first error. ForEach returns the first error of the first goroutine that has one.
func ForEach(n, goroutines int, do func(i int) error) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n && errs[g] == nil; i += goroutines {
				errs[g] = do(i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
