package main

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// benchPrefix begins the keys of a bench.
const benchPrefix = "bench:"

// keyDigits is how many digits end these keys.
const keyDigits = 12

// keySet is keys, of equal length, that nobody else uses.
type keySet struct {
	prefix      string
	n           int
	first, step int // their numbers
}

// newKeys returns n keys.
func newKeys(n int) keySet {
	var run [4]byte
	rand.Read(run[:]) // never fails
	return keySet{prefix: fmt.Sprintf("%s%x:", benchPrefix, run), n: n, step: 1}
}

// share returns the keys of one of so many who share them, none of which is fixed.
func (k keySet) share(i, shares int) keySet {
	k.n, k.first, k.step = 0, i, shares
	return k
}

// likeWindows returns keys that are as long as the names of their windows' records.
func (k keySet) likeWindows(scale time.Duration) keySet {
	name := fmt.Sprintf("rl:%v:%d:", scale, time.Now().UnixNano()/int64(scale))
	k.prefix += strings.Repeat("-", len(name))
	return k
}

// append appends the i-th key to dst.
func (k keySet) append(dst []byte, i int) []byte {
	dst = append(dst, k.prefix...)
	dst = append(dst, "000000000000"[:keyDigits]...)
	k.number(dst, i)
	return dst
}

// number makes key, or what ends with it, the i-th one.
func (k keySet) number(key []byte, i int) {
	n := k.first + i*k.step
	for at := len(key) - 1; at >= len(key)-keyDigits; at-- {
		key[at] = '0' + byte(n%10)
		n /= 10
	}
}

// key returns the i-th key.
func (k keySet) key(i int) string { return string(k.append(nil, i)) }

// all returns the keys.
func (k keySet) all() []string {
	all := make([]string, k.n)
	for i := range all {
		all[i] = k.key(i)
	}
	return all
}

// pick returns one of n at random, the same for the same numbers (the finalizer of
// SplitMix64).
func pick(n, worker int, i uint64) int {
	x := uint64(worker)<<40 + i
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(n))
}
