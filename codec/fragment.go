package codec

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
)

// FragmentEntry is an entry of a response that comes in fragments: a [ListEntry],
// [StatsEntry], [ConnectionInfo] or [ChannelsEntry]. On the wire it has a part of
// a fixed size, and a name or none. The names of a fragment's entries come one
// behind the other after the fixed parts of all of them.
type FragmentEntry[E any] interface {
	// size is the length of the fixed part in bytes.
	size() int
	// scan checks the fixed part, and reads the length of the name from it.
	scan(b []byte) (name int, err error)
	// decode reads the fixed part once it was checked.
	decode(b []byte) E
	// named returns the entry with its name.
	named(name []byte) E

	// check says whether the entry can be encoded.
	check() error
	// encode writes the fixed part.
	encode(b []byte)
	name() []byte
}

// FragmentDecoder decodes a response that comes in fragments as it arrives. It is
// known as [ListDecoder], [StatsDecoder], [ConnectionsDecoder] and
// [ChannelsDecoder]. Its zero value is at the start of a response.
//
//	01 · fragments u64 · per fragment: index u64, from 1 · n u64 · n × fixed part · n names
//
// It keeps one fragment, and of that what has arrived: a count on the wire makes
// it allocate nothing and wait for nothing but bytes.
type FragmentDecoder[E FragmentEntry[E]] struct {
	// MaxFragment is how many bytes the entries and names of a fragment may have, 0 for any
	// number: one with more is malformed. Those of a server have less than 24 KiB.
	MaxFragment uint64

	state fragments[E]
	part  []byte // the beginning of the item that is to come next
	taken bool   // part is a whole item, decoded by the last call
}

// Decode takes bytes from src, up to the end of a fragment and no further than the
// end of the response, and returns how many. What the last call did not take must
// come again, at the start of the next src.
//
// Entries are those of the fragment that has come to its end, and nil where none has:
// those of an empty fragment are empty. They are valid until the next call and until
// src is overwritten. Errors: [ErrShort] where all of src
// was taken and more bytes are needed; [ErrMalformed], with the offset in the
// response, for good.
func (d *FragmentDecoder[E]) Decode(src []byte) (entries []E, n int, err error) {
	if d.taken {
		d.part, d.taken = d.part[:0], false
	}
	d.state.max = d.MaxFragment
	for !d.state.done() {
		item := d.next(src, &n)
		if item == nil {
			return nil, n, ErrShort
		}
		whole, err := d.state.take(item)
		if err != nil {
			return nil, 0, err
		}
		if whole {
			d.taken = len(d.part) > 0
			return d.state.entries, n, nil
		}
		d.part = d.part[:0]
	}
	return nil, n, nil
}

// Done reports whether the response has come to its end.
func (d *FragmentDecoder[E]) Done() bool { return d.state.done() }

// next returns the next item, once it has arrived, from src[*n:] if that holds all
// of it.
func (d *FragmentDecoder[E]) next(src []byte, n *int) []byte {
	size, rest := d.state.size(), src[*n:]
	if len(d.part) == 0 && uint64(len(rest)) >= size {
		*n += int(size)
		return rest[:size:size]
	}
	took := min(size-uint64(len(d.part)), uint64(len(rest)))
	d.part = append(d.part, rest[:took]...)
	*n += int(took)
	if uint64(len(d.part)) < size {
		return nil
	}
	return d.part[:size:size]
}

// stage is what comes next in a response that comes in fragments.
type stage uint8

const (
	atStatus stage = iota
	atCount
	atFragment
	atEntry
	atNames
	atEnd
)

// fragments reads a response that comes in fragments, item by item: take(item) with
// an item of size() bytes, until done().
type fragments[E FragmentEntry[E]] struct {
	dry     bool   // only look whether the items are as they should be
	max     uint64 // bytes of a fragment; 0: any number
	stage   stage
	offset  int64  // of the next item in the response
	count   uint64 // of fragments in the response
	index   uint64 // of the fragment, from 1
	left    uint64 // entries of the fragment that are to come
	start   int64  // where the fragment begins in the response
	fixed   uint64 // bytes of all its entries; the largest uint64 if they are more
	total   uint64 // bytes of the names of those that have come
	names   []byte // the lengths of these names
	entries []E
	err     error
}

func (f *fragments[E]) done() bool { return f.stage == atEnd }

// size is the length of the next item in bytes.
func (f *fragments[E]) size() uint64 {
	switch f.stage {
	case atStatus:
		return 1
	case atCount:
		return 8
	case atFragment:
		return 16
	case atEntry:
		var e E
		return uint64(e.size())
	default:
		return f.total
	}
}

// take reads the next item, and reports whether it is the last of a fragment. An
// error stays.
func (f *fragments[E]) take(item []byte) (whole bool, err error) {
	if f.err == nil {
		whole, f.err = f.read(item)
	}
	return whole, f.err
}

func (f *fragments[E]) read(item []byte) (whole bool, err error) {
	offset := f.offset
	f.offset += int64(len(item))
	switch f.stage {
	case atStatus:
		f.stage = atCount
		return false, listed(item)
	case atCount:
		f.count = binary.LittleEndian.Uint64(item)
		f.begin()
	case atFragment:
		f.index++
		if index := binary.LittleEndian.Uint64(item); index != f.index {
			return false, &DecodeError{Offset: offset, Field: "fragment index", Value: index, Err: ErrMalformed}
		}
		f.left, f.start = binary.LittleEndian.Uint64(item[8:]), offset
		f.total, f.names, f.entries = 0, f.names[:0], f.entries[:0]
		if f.entries == nil {
			f.entries = []E{} // costs nothing
		}
		f.stage = atEntry
		if f.left == 0 {
			f.stage = atNames
		}
		var e E
		f.fixed = times(f.left, uint64(e.size()))
		return false, f.fits()
	case atEntry:
		var e E
		name, err := e.scan(item)
		if err != nil {
			return false, at(offset, err)
		}
		f.total += uint64(name)
		if !f.dry {
			f.entries = append(f.entries, e.decode(item))
			f.names = append(f.names, byte(name))
		}
		if f.left--; f.left == 0 {
			f.stage = atNames
		}
		return false, f.fits()
	case atNames:
		for i := range f.entries {
			n := int(f.names[i])
			f.entries[i] = f.entries[i].named(item[:n:n])
			item = item[n:]
		}
		f.begin()
		return true, nil
	}
	return false, nil
}

// fits refuses a fragment that has more bytes than it may, as soon as that is known.
func (f *fragments[E]) fits() error {
	if f.max == 0 || f.fixed <= f.max && f.total <= f.max-f.fixed {
		return nil
	}
	length := f.fixed + min(f.total, math.MaxUint64-f.fixed)
	return &DecodeError{Offset: f.start, Field: "fragment", Value: length, Err: ErrMalformed}
}

// times returns the product, or the largest uint64 if it is more.
func times(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return lo
	}
	return math.MaxUint64
}

// begin gets ready for the next fragment, if there is one.
func (f *fragments[E]) begin() {
	f.stage = atFragment
	if f.index == f.count {
		f.stage = atEnd
	}
}

// decodeFragments decodes a whole response that comes in fragments. It looks first,
// so that nothing is allocated for what is not whole.
func decodeFragments[E FragmentEntry[E]](src []byte) (all [][]E, n int, err error) {
	look := fragments[E]{dry: true}
	if n, err = look.all(src, nil); err != nil {
		return nil, 0, err
	}
	var f fragments[E]
	_, err = f.all(src, func() {
		all = append(all, f.entries)
		f.entries = nil
	})
	return all, n, err
}

// all reads the response at the start of src, and calls each where a fragment ends.
func (f *fragments[E]) all(src []byte, each func()) (n int, err error) {
	for !f.done() {
		size := f.size()
		if uint64(len(src)-n) < size {
			return 0, ErrShort
		}
		whole, err := f.take(src[n : n+int(size)])
		if err != nil {
			return 0, err
		}
		if whole && each != nil {
			each()
		}
		n += int(size)
	}
	return n, nil
}

// appendFragments is the inverse of decodeFragments.
func appendFragments[E FragmentEntry[E]](dst []byte, all [][]E) ([]byte, error) {
	n := 9
	for _, entries := range all {
		n += 16
		for _, e := range entries {
			if err := e.check(); err != nil {
				return dst, err
			}
			n += e.size() + len(e.name())
		}
	}
	dst = reserve(dst, n)
	dst = append(dst, 1)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(all)))
	for i, entries := range all {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(i+1))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(entries)))
		for _, e := range entries {
			end := len(dst) + e.size()
			e.encode(dst[len(dst):end])
			dst = dst[:end]
		}
		for _, e := range entries {
			dst = append(dst, e.name()...)
		}
	}
	return dst, nil
}

// allOf yields the entries of all fragments.
func allOf[E any](fragments [][]E) iter.Seq[E] {
	return func(yield func(E) bool) {
		for _, entries := range fragments {
			for _, e := range entries {
				if !yield(e) {
					return
				}
			}
		}
	}
}
