package load

import (
	"fmt"
	"math/bits"
	"strings"
	"sync"
)

// KeySet is N keys: a prefix and a number of 12 digits.
type KeySet struct {
	Prefix string
	N      int
}

// Key returns the i-th key.
func (s KeySet) Key(i int) string { return fmt.Sprintf("%s%012d", s.Prefix, i) }

// Keys returns the keys.
func (s KeySet) Keys() Keys {
	var all strings.Builder
	for i := range s.N {
		all.WriteString(s.Key(i))
	}
	return Keys{text: all.String(), length: len(s.Key(0)), n: s.N}
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
func (k Keys) Pick(worker int, i uint64) string {
	if k.n == 1 {
		return k.text
	}
	return k.At(pick(k.n, worker, i))
}

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
