package memory

import "hash/maphash"

// If a shard has no room for a window, its key shares a count with others: its hash selects one of a
// fixed number of records for each scale, which are in a table of their own. Such a record is used
// like any other, with every algorithm. As several keys add to it, it can only show more than each of
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
	// windowsPerShared is how many windows there may be for each shared count of a scale.
	windowsPerShared = 64
	// sharedScales is how many scales can have all of their shared counts.
	sharedScales = 16
)

// setShared makes the keys of the shared records. They are longer than those of all others.
func (b *Backend) setShared() {
	b.sharedKeys = make([]string, max(1, b.shardMax/windowsPerShared))
	for i := range b.sharedKeys {
		key := [sharedKeyLen]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}
		b.sharedKeys[i] = string(key[:])
	}
}

// shared reports whether k is the id of a shared record.
func (k id) shared() bool { return len(k.key) > maxKey }

// isShared reports whether r is a shared record.
func (r record) isShared() bool { return r[lengthOffset] > maxKey }

// sharedID returns the id of the shared record of k.
func (b *Backend) sharedID(k id) id {
	slot := (maphash.String(b.seed, k.key) >> 8 & 0xffffff) * uint64(len(b.sharedKeys)) >> 24
	return id{b.sharedKeys[slot], k.scale, mix(slot*0x9e3779b97f4a7c15, k.scale)}
}

// findShared returns the record that counts for k, which has no record, and its id: the count that it
// shares, or a copy of that. It returns k and nil if that is not active. The mutex is held.
func (s *shard) findShared(b *Backend, k id) (id, record) {
	c, r := s.lookShared(b, k)
	if r == nil || !b.rolling {
		return c, r
	}
	room := s.hasRoom(b, s.now(b))
	if r = s.find(c); r == nil { // its time has ended meanwhile
		return k, nil
	}
	if !room {
		return c, r
	}
	e := r.entry()
	if s.log != nil && !s.log.copy(&e) {
		return c, r
	}
	r = s.windows.forKey(k.key).insert(k)
	r.set(e)
	return k, r
}

// lookShared returns the id and the record of the count that k shares, if it is active. Otherwise it
// returns k and nil. The mutex is held.
func (s *shard) lookShared(b *Backend, k id) (id, record) {
	if s.windows.shared().n == 0 {
		return k, nil
	}
	c := b.sharedID(k)
	if r := s.find(c); r != nil {
		if e := r.entry(); b.active(&e, s.now(b)) {
			return c, r
		}
	}
	return k, nil
}

// hasRoom reports whether there is room for a window, and makes it if necessary. The mutex is held.
func (s *shard) hasRoom(b *Backend, now int64) bool {
	return s.windows.len() < b.shardMax || s.makeRoom(b, now, nil) && s.windows.len() < b.shardMax
}

// place returns the record in which a window of k opens, and its id: a new one, or the shared one if
// there is no room. There is no active window. The mutex is held.
func (b *Backend) place(s *shard, k id, now int64) (id, record, error) {
	if !k.shared() {
		if s.hasRoom(b, now) {
			return k, s.windows.forKey(k.key).insert(k), nil
		}
		k = b.sharedID(k)
	}
	if r := s.find(k); r != nil { // it is over
		if s.log != nil {
			s.log.release(r)
		}
		return k, r, nil
	}
	if s.windows.shared().n >= sharedScales*len(b.sharedKeys) {
		return k, nil, b.errFull
	}
	return k, s.windows.forKey(k.key).insert(k), nil
}

// sharesAny reports whether a key shares an active count, of any scale. The mutex is held.
func (s *shard) sharesAny(b *Backend, key string) bool {
	t, now := s.windows.shared(), s.now(b)
	for slot := range t.tags {
		if t.tags[slot] != 0 && string(t.at(slot).key()) == b.sharedID(id{key: key}).key {
			if e := t.at(slot).entry(); b.active(&e, now) && s.find(b.id(key, e.scale)) == nil {
				return true
			}
		}
	}
	return false
}
