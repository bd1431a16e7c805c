package memory

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
)

const (
	maxShards = 256
	// longestKey is the length of the longest key that is stored. Of longer ones, a digest is.
	longestKey = 128
	// sweepStep is how many records are looked at for a new key if there is no room.
	sweepStep = 128
	// keysPerShared is how many keys there may be for each shared count of a limit.
	keysPerShared = 64
	// sharedLimits is how many names, scales and algorithms can have all of their shared counts.
	sharedLimits = 16
)

// shard has the records of some keys. The mutex guards all of it.
//
// If it has no room for a record, a key shares a record with others: its hash selects one of a fixed number for each
// name, scale and algorithm. As all of them add to it, it can only show more than each has added. A key without a
// record of its own uses the shared one as long as that counts something, even if there is room again: otherwise, its
// count would start anew. With a rolling algorithm, it would count something for as long as any key is hit. So a key
// then gets a copy of it. A key with a record never uses the shared one, as a record that counts something is not
// removed.
type shard struct {
	mu     sync.Mutex
	closed bool
	index  int32 // of the shard; constant
	calls  uint64
	series uint64 // the last one
	own    table  // of one key each

	// What most calls need is before this: a cache line of 64 bytes.
	shared  table
	scratch algorithm.Record // of a call that changes none
}

// hasRoom reports whether there is room for another key. The mutex is held.
func (s *shard) hasRoom(b *Backend, at instant) bool {
	if s.own.len >= b.shardMax {
		s.own.sweep(at, sweepStep)
	}
	return s.own.len < b.shardMax
}

// sharedRoom is hasRoom for a shared record.
func (s *shard) sharedRoom(b *Backend, at instant) bool {
	most := sharedLimits * b.sharedKeys
	if s.shared.len >= most {
		s.shared.sweep(at, sweepStep)
	}
	return s.shared.len < most
}

// logRoom reports whether a log that has room for some times may have room for more. The mutex is held.
func (s *shard) logRoom(b *Backend, from, to int) bool {
	return s.own.times+s.shared.times+to-from <= b.shardTimes
}

// ended removes a record that was ended, unless its key would then share what others count: it stays until others need
// the room.
func (s *shard) ended(r *record) {
	if s.shared.len == 0 {
		s.own.remove(r)
	}
}

// sharesAny reports whether a key shares a record of some scales, or of any, that counts something.
func (s *shard) sharesAny(b *Backend, k id, scales []time.Duration, at instant) bool {
	hash, cell := maphash.String(b.seed, k.key), b.sharedKey(k.key)
	shares := false
	s.shared.visit(0, len(s.shared.cells), func(r *record) {
		if r.key() != cell || len(scales) > 0 && !slices.Contains(scales, r.Scale) || r.left(at) <= 0 {
			return
		}
		l := r.limit()
		k.hash = b.mix(hash, &l)
		shares = shares || s.own.find(k, &l) == nil
	})
	return shares
}
