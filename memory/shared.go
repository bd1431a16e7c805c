package memory

import "hash/maphash"

// If a shard has no room for a window, its key shares a count with others: its hash selects one of a
// fixed number of records for each name, scale and algorithm. Such a record is used like any other, with every
// algorithm. As several keys add to it, it can only show more than each of
// them has added.
//
// A key without a record of its own uses the shared one as long as that is active, even if there is room
// again: otherwise, its count would start anew. A key that has a record of its own never uses the
// shared one, as a window that is active is not removed to make room.
//
// With a rolling algorithm, a shared record would be active for as long as any key is hit. So if there is
// room again, a key gets a copy of it. From then on, nothing is added to the shared one, which is over
// after a scale or two.

const (
	// windowsPerShared is how many windows there may be for each shared count of a limit.
	windowsPerShared = 64
	// sharedLimits is how many names, scales and algorithms can have all of their shared counts.
	sharedLimits = 16
	// sharedKeyLen is the length of the keys of shared records, which are numbers.
	sharedKeyLen = 4
)

// setShared makes the keys of the shared records.
func (b *Backend) setShared() {
	b.sharedKeys = make([]string, max(1, b.shardMax/windowsPerShared))
	for i := range b.sharedKeys {
		key := [sharedKeyLen]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}
		b.sharedKeys[i] = string(key[:])
	}
}

// sharedKey returns the key of the shared records of a key.
func (b *Backend) sharedKey(key string) string {
	cell := (maphash.String(b.seed, key) >> 8 & 0xffffff) * uint64(len(b.sharedKeys)) >> 24
	return b.sharedKeys[cell]
}

// sharedID returns the id of the shared record of k.
func (b *Backend) sharedID(k *windowID) windowID {
	c, key := windowID{name: k.name, scale: k.scale, kind: k.kind&^long | shared}, b.sharedKey(k.key)
	b.setKey(&c, key)
	return c
}

// findShared returns the record that counts for k, which has no record, and sets k to its id: the count
// that it shares, or a copy of that. It returns nil if that is not active. The mutex is held, and there is room for a
// record.
func (s *shard) findShared(b *Backend, k *windowID) *record {
	own := *k
	r := s.lookShared(b, k)
	a := &algorithms[k.kind.algorithm()]
	if r == nil || !a.rolling {
		return r
	}
	room := s.hasRoom(b)
	if r = s.find(k); r == nil { // its time has ended meanwhile
		*k = own
		return nil
	}
	if !room {
		return r
	}
	e := r.state() // other calls use a shared record with the shard's mutex only
	if a.logs && !s.log.copy(&e) {
		return r
	}
	*k = own
	r = s.insert(k)
	r.mu.Lock()
	r.set(e)
	r.mu.Unlock()
	return r
}

// lookShared returns the record of the count that k shares, if it is active, and sets k to its id.
// Otherwise it returns nil. The mutex is held.
func (s *shard) lookShared(b *Backend, k *windowID) *record {
	if s.shares == 0 {
		return nil
	}
	c := b.sharedID(k)
	if r := s.find(&c); r != nil {
		now, ref := s.now(b)
		if a := r.algorithm(); a.active(r.state(), now+ref.shift(a)) {
			*k = c
			return r
		}
	}
	return nil
}

// hasRoom reports whether there is room for a window, and makes it if necessary. The mutex is held.
func (s *shard) hasRoom(b *Backend) bool {
	if s.windows < b.shardMax {
		return true
	}
	now, ref := s.now(b)
	return s.makeRoom(b, now, ref) && s.windows < b.shardMax
}

// recordFor returns the record in which a window of k opens: a new one, or the shared one if there is no room,
// and then sets k to its id. There is no active window. The mutex is held, and there is room for records.
func (b *Backend) recordFor(s *shard, k *windowID) (*record, error) {
	if k.kind&shared == 0 {
		if s.hasRoom(b) {
			return s.insert(k), nil
		}
		*k = b.sharedID(k)
	}
	if r := s.find(k); r != nil { // it is over
		if r.algorithm().logs {
			s.log.release(r)
		}
		return r, nil
	}
	if s.shares >= sharedLimits*len(b.sharedKeys) {
		return nil, b.errFull
	}
	return s.insert(k), nil
}
