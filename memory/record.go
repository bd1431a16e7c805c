package memory

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// windowID identifies a window.
type windowID struct {
	key, name string
	words     // of the record
	scale     time.Duration
	hash      uint32 // of all
	kind      kind
}

// kind is an algorithm, in the three lowest bits (so there are 7 at most), and what else tells records apart.
type kind uint8

const (
	shared kind = 1 << (iota + 3) // by keys without a window: see shared.go
	long                          // the text is in the table: the key is not short, or there is a name
)

func (k kind) algorithm() window.Algorithm { return window.Algorithm(k & (shared - 1)) }

// shortKey is the length of the longest key that is in its record.
const shortKey = 16

// record is the state of a window and its id. It is as long as a cache line, and has no pointers, so that the garbage
// collector does not scan it.
//
// The shard's mutex guards all of its fields: holding it alone, they can be read, but for those that mu guards.
// A call that has found the record without the shard's mutex holds mu only. It may read the id, which never
// changes, and if the record is not dead, read and change its count, and what else does not concern the
// shard. A log, which has its times in the shard, is used with the shard's mutex only.
type record struct {
	mu    sync.Mutex // guards start, meta, count, calls and dead
	start int64
	meta  uint64
	count uint64

	scale   time.Duration
	words   // of a short key; else first is where the text begins, and last is the sum of the hashes of key and name
	kind    kind
	keyLen  uint8
	nameLen uint8
	held    bool // by the call that has the shard's mutex: it has locked mu
	dead    bool // it is not in use any more; it changes only with both mutexes
	calls   uint16
}

// state returns the state of the window. Mu is held.
func (r *record) state() state {
	return state{start: r.start, meta: r.meta, count: r.count, scale: r.scale}
}

// set sets the state of the window. Mu is held.
func (r *record) set(e state) { r.start, r.meta, r.count = e.start, e.meta, e.count }

// busy reports whether only a call with the shard's mutex can use the record: it is dead, or must give its calls to the
// shard. Mu is held.
func (r *record) busy() bool { return r.dead || r.calls == math.MaxUint16 }

func (r *record) algorithm() *algorithm { return &algorithms[r.kind.algorithm()] }

// words are the first and the last eight bytes of a short key, which overlap if it has fewer than 16. So keys
// of one length are equal if their words are.
type words struct{ first, last uint64 }

func wordsOf(key string) (w words) {
	switch n := len(key); {
	case n >= 8:
		w.first, w.last = word(key), word(key[n-8:])
	case n >= 4:
		w.first, w.last = uint64(half(key)), uint64(half(key[n-4:]))
	case n > 0:
		w.first = uint64(key[0]) | uint64(key[n/2])<<8 | uint64(key[n-1])<<16
	}
	return w
}

func word(s string) uint64 { return uint64(half(s)) | uint64(half(s[4:]))<<32 }

func half(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// appendKey appends the short key of length n that has the words.
func appendKey(to []byte, w words, n int) []byte {
	var b [shortKey]byte
	switch {
	case n >= 8:
		binary.LittleEndian.PutUint64(b[:], w.first)
		binary.LittleEndian.PutUint64(b[n-8:], w.last)
	case n >= 4:
		binary.LittleEndian.PutUint32(b[:], uint32(w.first))
		binary.LittleEndian.PutUint32(b[n-4:], uint32(w.last))
	case n > 0:
		b[0], b[n-1] = byte(w.first), byte(w.first>>16)
		b[n/2] = byte(w.first >> 8)
	}
	return append(to, b[:n]...)
}

// textLen returns the length of what of an id is in the table if it is long.
func (k *windowID) textLen() int {
	if k.kind&long == 0 {
		return 0
	}
	return max(len(k.key), sharedKeyLen) + len(k.name) // the record may be a shared one
}

// setKey sets the key, and the hash of the id, which has all else, but not whether it is long. It returns the hash of
// the key.
func (b *Backend) setKey(k *windowID, key string) (h uint64) {
	k.key = key
	if len(key) > shortKey {
		h = maphash.String(b.seed, key)
	} else {
		k.words = wordsOf(key)
		h = b.hashWords(k.words)
	}
	sum := h
	if k.name != "" {
		sum += maphash.String(b.seed, k.name)
	}
	if len(key) > shortKey || k.name != "" {
		k.kind |= long
		k.words = words{last: sum}
	}
	k.hash = mix(sum, k.scale, k.kind)
	return h
}

// hashWords returns the hash of a short key. As long as nobody knows the masks, nobody can make up keys with equal hashes. Maphash
// takes 2 to 8 ns more. The second multiplication spreads what differs to all bits, as the shard, the group and the tag need.
func (b *Backend) hashWords(w words) uint64 {
	high, low := bits.Mul64(w.first^b.masks.first, w.last^b.masks.last)
	high, low = bits.Mul64(high^low, 0x9e3779b97f4a7c15)
	return high ^ low
}

// mix returns the hash of an id whose key and name have the sum h of their hashes. It does not use the bits that
// select the shard, which are the same for all keys of a shard.
func mix(h uint64, scale time.Duration, k kind) uint32 {
	return uint32((h + (uint64(scale)<<3+uint64(k))*0x9e3779b97f4a7c15) >> 32)
}
