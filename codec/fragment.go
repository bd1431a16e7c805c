package codec

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
)

// FragmentEntry is an entry of a response that comes in fragments: a [ListEntry],
// [StatsEntry], [ConnectionInfo] or [ChannelsEntry]. On the wire it has a fixed part, of a
// fixed size, and may have a name. The names of a fragment's entries follow the fixed
// parts of all of them.
type FragmentEntry[E any] interface {
	// size is the length of the fixed part in bytes.
	size() int
	// scan checks the fixed part, and returns the length of the name.
	scan(b []byte) (name int, err error)
	// decode reads a fixed part that scan has accepted.
	decode(b []byte) E
	// named returns the entry with its name.
	named(name []byte) E

	// check returns an error if the entry can't be encoded.
	check() error
	// encode writes the fixed part.
	encode(b []byte)
	name() []byte
}

// FragmentDecoder decodes a response that comes in fragments, as it arrives. [ListDecoder],
// [StatsDecoder], [ConnectionsDecoder] and [ChannelsDecoder] are its instances. The zero
// value is ready to decode one response.
//
//	01 · fragments u64 · per fragment: index u64, from 1 · n u64 · n × fixed part · n names
//
// It holds no more than one fragment, and of that no more than has arrived: it does not
// allocate by counts that it has read from the wire.
type FragmentDecoder[E FragmentEntry[E]] struct {
	// MaxFragment bounds the bytes of the entries and names of a fragment: one with more is
	// malformed. 0 is no bound. The fragments of real servers have less than 24 KiB.
	MaxFragment uint64

	parser fragments[E]
	part   []byte // the bytes of the next item that have arrived
	taken  bool   // part is complete, and was decoded by the last call
}

// Decode decodes bytes of src up to the end of a fragment or of the response, and returns
// how many it took. The next src must begin with the bytes that it did not take.
//
// It returns the entries of the fragment that ends there; nil if none does. The entries of
// an empty fragment are empty and not nil. They are valid until the next call, and until
// src is overwritten.
//
// Errors: [ErrShort] if it took all of src and needs more bytes; [ErrMalformed], with the
// offset in the response, at this and every later call.
func (d *FragmentDecoder[E]) Decode(src []byte) (entries []E, n int, err error) {
	if d.taken {
		d.part, d.taken = d.part[:0], false
	}
	d.parser.max = d.MaxFragment
	for !d.parser.done() {
		item := d.next(src, &n)
		if item == nil {
			return nil, n, ErrShort
		}
		ended, err := d.parser.feed(item)
		if err != nil {
			return nil, 0, err
		}
		if ended {
			d.taken = len(d.part) > 0
			return d.parser.entries, n, nil
		}
		d.part = d.part[:0]
	}
	return nil, n, nil
}

// Done reports whether the response is complete.
func (d *FragmentDecoder[E]) Done() bool { return d.parser.done() }

// next returns the next item, or nil if it has not arrived yet. It adds the bytes that it
// took from src[*n:] to *n. An item that lies in src as a whole is not copied.
func (d *FragmentDecoder[E]) next(src []byte, n *int) []byte {
	size, rest := d.parser.size(), src[*n:]
	if len(d.part) == 0 && uint64(len(rest)) >= size {
		*n += int(size)
		return rest[:size:size]
	}
	more := min(size-uint64(len(d.part)), uint64(len(rest)))
	d.part = append(d.part, rest[:more]...)
	*n += int(more)
	if uint64(len(d.part)) < size {
		return nil
	}
	return d.part[:size:size]
}

// stage is the kind of the next item of a response that comes in fragments.
type stage uint8

const (
	atStatus stage = iota
	atCount
	atFragment
	atEntry
	atNames
	atEnd
)

// fragments decodes a response that comes in fragments, item by item: until done returns
// true, the caller passes the next size() bytes to feed.
type fragments[E FragmentEntry[E]] struct {
	dry     bool   // only check the items
	max     uint64 // bytes of a fragment; 0: any number
	stage   stage
	offset  int64  // of the next item in the response
	count   uint64 // of fragments in the response
	index   uint64 // of the fragment, from 1
	left    uint64 // how many entries of the fragment have not been read
	start   int64  // where the fragment begins in the response
	fixed   uint64 // the length of its fixed parts in bytes; math.MaxUint64 if it is more
	total   uint64 // the length of the names of the entries that were read, in bytes
	names   []byte // the lengths of these names
	entries []E
	err     error
}

func (f *fragments[E]) done() bool { return f.stage == atEnd }

// size returns the length of the next item in bytes.
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

// feed decodes the next item, and reports whether it ends a fragment. After an error, every
// call returns that error.
func (f *fragments[E]) feed(item []byte) (ended bool, err error) {
	if f.err == nil {
		ended, f.err = f.read(item)
	}
	return ended, f.err
}

func (f *fragments[E]) read(item []byte) (ended bool, err error) {
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
		f.left = binary.LittleEndian.Uint64(item[8:])
		f.start = offset
		f.total = 0
		f.names = f.names[:0]
		f.entries = f.entries[:0]
		if f.entries == nil {
			f.entries = []E{} // allocates nothing
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

// fits returns an error if the fragment is longer than f.max, as soon as that is known.
func (f *fragments[E]) fits() error {
	if f.max == 0 || f.fixed <= f.max && f.total <= f.max-f.fixed {
		return nil
	}
	length := f.fixed + min(f.total, math.MaxUint64-f.fixed)
	return &DecodeError{Offset: f.start, Field: "fragment", Value: length, Err: ErrMalformed}
}

// times returns a·b, or math.MaxUint64 if it is more.
func times(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return lo
	}
	return math.MaxUint64
}

// begin sets the stage to the next fragment, or to the end.
func (f *fragments[E]) begin() {
	f.stage = atFragment
	if f.index == f.count {
		f.stage = atEnd
	}
}

// decodeFragments decodes a whole response that comes in fragments. It checks the response
// first, so that it allocates nothing for one that is incomplete or malformed.
func decodeFragments[E FragmentEntry[E]](src []byte) (all [][]E, n int, err error) {
	check := fragments[E]{dry: true}
	if n, err = check.all(src, nil); err != nil {
		return nil, 0, err
	}
	var f fragments[E]
	_, err = f.all(src, func() {
		all = append(all, f.entries)
		f.entries = nil
	})
	return all, n, err
}

// all decodes the response at the start of src, and calls each at the end of a fragment.
func (f *fragments[E]) all(src []byte, each func()) (n int, err error) {
	for !f.done() {
		size := f.size()
		if uint64(len(src)-n) < size {
			return 0, ErrShort
		}
		ended, err := f.feed(src[n : n+int(size)])
		if err != nil {
			return 0, err
		}
		if ended && each != nil {
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
