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
	// decode returns the entry with a fixed part, and the length of its name.
	decode(b []byte) (e E, name int, err error)
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
		item, took := d.next(src[n:])
		n += took
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

// next returns the next item, or nil if it has not arrived yet, and how many bytes of src it took. An item that lies in
// src as a whole is not copied.
func (d *FragmentDecoder[E]) next(src []byte) (item []byte, n int) {
	size := d.parser.size()
	if len(d.part) == 0 && uint64(len(src)) >= size {
		return src[:size:size], int(size)
	}
	n = int(min(size-uint64(len(d.part)), uint64(len(src))))
	d.part = append(d.part, src[:n]...)
	if uint64(len(d.part)) < size {
		return nil, n
	}
	return d.part[:size:size], n
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
	dry    bool   // only check the items
	max    uint64 // bytes of a fragment; 0: any number
	stage  stage
	offset int64  // of the next item in the response
	count  uint64 // of fragments in the response
	err    error

	// Of the fragment.
	index   uint64 // from 1
	start   int64  // its offset in the response
	left    uint64 // how many entries have not been read
	length  uint64 // of its fixed parts, and of the names of the entries that were read, in bytes
	names   uint64 // of the names of the entries that were read, in bytes
	lengths []byte // of each of these names
	entries []E
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
		return f.names
	}
}

// feed decodes the next item, and reports whether it ends a fragment. After an error, every
// call returns that error.
func (f *fragments[E]) feed(item []byte) (ended bool, err error) {
	if f.err != nil {
		return false, f.err
	}
	switch f.stage {
	case atStatus:
		f.stage = atCount
		f.err = listed(item)
	case atCount:
		f.count = binary.LittleEndian.Uint64(item)
		f.begin()
	case atFragment:
		f.err = f.readHead(item)
	case atEntry:
		f.err = f.readEntry(item)
	case atNames:
		f.readNames(item)
		ended = true
	}
	f.offset += int64(len(item))
	return ended, f.err
}

// begin sets the stage to the next fragment, or to the end.
func (f *fragments[E]) begin() {
	f.stage = atFragment
	if f.index == f.count {
		f.stage = atEnd
	}
}

func (f *fragments[E]) readHead(item []byte) error {
	f.index++
	if index := binary.LittleEndian.Uint64(item); index != f.index {
		return &DecodeError{Offset: f.offset, Field: "fragment index", Value: index, Err: ErrMalformed}
	}
	f.start = f.offset
	f.left = binary.LittleEndian.Uint64(item[8:])
	f.names = 0
	f.lengths = f.lengths[:0]
	f.entries = f.entries[:0]
	if f.entries == nil {
		f.entries = []E{} // allocates nothing
	}
	f.stage = atEntry
	if f.left == 0 {
		f.stage = atNames
	}
	var e E
	high, length := bits.Mul64(f.left, uint64(e.size()))
	if high != 0 {
		length = math.MaxUint64
	}
	f.length = length
	return f.checkLength()
}

func (f *fragments[E]) readEntry(item []byte) error {
	var e E
	e, name, err := e.decode(item)
	if err != nil {
		return at(f.offset, err)
	}
	f.names += uint64(name)
	f.length += uint64(name)
	if !f.dry {
		f.entries = append(f.entries, e)
		f.lengths = append(f.lengths, byte(name))
	}
	f.left--
	if f.left == 0 {
		f.stage = atNames
	}
	return f.checkLength()
}

// checkLength returns an error if the fragment is longer than f.max, as soon as that is known.
func (f *fragments[E]) checkLength() error {
	if f.max == 0 || f.length <= f.max {
		return nil
	}
	return &DecodeError{Offset: f.start, Field: "fragment", Value: f.length, Err: ErrMalformed}
}

func (f *fragments[E]) readNames(item []byte) {
	for i := range f.entries {
		n := int(f.lengths[i])
		f.entries[i] = f.entries[i].named(item[:n:n])
		item = item[n:]
	}
	f.begin()
}

// decodeFragments decodes a whole response that comes in fragments. It checks the response
// first, so that it allocates nothing for one that is incomplete or malformed.
func decodeFragments[E FragmentEntry[E]](src []byte) (all [][]E, n int, err error) {
	check := fragments[E]{dry: true}
	for !check.done() {
		size := check.size()
		if uint64(len(src)-n) < size {
			return nil, 0, ErrShort
		}
		if _, err := check.feed(src[n : n+int(size)]); err != nil {
			return nil, 0, err
		}
		n += int(size)
	}
	var f fragments[E]
	for rest := src[:n]; !f.done(); {
		size := f.size()
		ended, _ := f.feed(rest[:size])
		if ended {
			all = append(all, f.entries)
			f.entries = nil
		}
		rest = rest[size:]
	}
	return all, n, nil
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
