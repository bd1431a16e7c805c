package memory

import "encoding/binary"

// slab keeps records of one size, numbered from 0. They stay where they are, and there is
// not a pointer in them: so the garbage collector has nothing to look at, and growing
// copies nothing.
type slab struct {
	chunks [][]byte
	free   uint32 // one more than the number of the first that was given back, which has the next one's
	used   uint32 // numbers that have been given out
}

// chunk is how many records are allocated at a time.
const chunk = 32

// class is what size a record has.
type class uint32

// sizes are those of records, chosen so that one with a key of up to 31 bytes is a cache
// line, and that the allocator has no use for a chunk's rest.
var sizes = [4]int{64, 96, 128, 168}

// classOf returns the class of records that have room for a key.
func classOf(key string) class {
	c := class(0)
	for keyAt+len(key) > sizes[c] {
		c++
	}
	return c
}

func (s *slab) at(number uint32, c class) record {
	size := sizes[c&3]
	from := int(number%chunk) * size
	return s.chunks[number/chunk][from : from+size]
}

// take returns the number of a record for use.
func (s *slab) take(c class) uint32 {
	if s.free > 0 {
		number := s.free - 1
		s.free = binary.LittleEndian.Uint32(s.at(number, c))
		return number
	}
	if s.used%chunk == 0 {
		s.chunks = append(s.chunks, make([]byte, chunk*sizes[c]))
	}
	s.used++
	return s.used - 1
}

// giveBack has the record be used again.
func (s *slab) giveBack(number uint32, c class) {
	r := s.at(number, c)
	r.set(entry{})
	binary.LittleEndian.PutUint32(r, s.free)
	s.free = number + 1
}
