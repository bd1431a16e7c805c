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

	// append appends the fixed part to dst, or returns an error.
	append(dst []byte) ([]byte, error)
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

	stage  stage
	part   []byte // the bytes of the next item that have arrived
	taken  bool   // part is complete, and was decoded by the last call
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
	for d.err == nil && !d.Done() {
		item, took := d.next(src[n:])
		n += took
		if item == nil {
			return nil, n, ErrShort
		}
		if d.decode(item) {
			d.taken = len(d.part) > 0
			return d.entries, n, nil
		}
		d.part = d.part[:0]
	}
	if d.err != nil {
		return nil, 0, d.err
	}
	return nil, n, nil
}

// Done reports whether the response is complete.
func (d *FragmentDecoder[E]) Done() bool { return d.stage == atEnd }

// next returns the next item, or nil if it has not arrived yet, and how many bytes of src it took. An item that lies in
// src as a whole is not copied.
func (d *FragmentDecoder[E]) next(src []byte) (item []byte, n int) {
	size := d.size()
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

// size returns the length of the next item in bytes.
func (d *FragmentDecoder[E]) size() uint64 {
	switch d.stage {
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
		return d.names
	}
}

// decode decodes the next item, and reports whether it ends a fragment.
func (d *FragmentDecoder[E]) decode(item []byte) (ended bool) {
	switch d.stage {
	case atStatus:
		d.stage = atCount
		d.err = listed(item)
	case atCount:
		d.count = binary.LittleEndian.Uint64(item)
		d.begin()
	case atFragment:
		d.err = d.readHead(item)
	case atEntry:
		d.err = d.readEntry(item)
	case atNames:
		d.readNames(item)
		ended = true
	}
	d.offset += int64(len(item))
	return ended
}

// begin sets the stage to the next fragment, or to the end.
func (d *FragmentDecoder[E]) begin() {
	d.stage = atFragment
	if d.index == d.count {
		d.stage = atEnd
	}
}

func (d *FragmentDecoder[E]) readHead(item []byte) error {
	d.index++
	if index := binary.LittleEndian.Uint64(item); index != d.index {
		return &DecodeError{Offset: d.offset, Field: "fragment index", Value: index, Err: ErrMalformed}
	}
	d.start = d.offset
	d.left = binary.LittleEndian.Uint64(item[8:])
	d.names = 0
	d.lengths = d.lengths[:0]
	d.entries = d.entries[:0]
	if d.entries == nil {
		d.entries = []E{} // allocates nothing
	}
	d.stage = atEntry
	if d.left == 0 {
		d.stage = atNames
	}
	var e E
	high, length := bits.Mul64(d.left, uint64(e.size()))
	if high != 0 {
		length = math.MaxUint64
	}
	d.length = length
	return d.checkLength()
}

func (d *FragmentDecoder[E]) readEntry(item []byte) error {
	var e E
	e, name, err := e.decode(item)
	if err != nil {
		return at(d.offset, err)
	}
	d.names += uint64(name)
	d.length += uint64(name)
	d.entries = append(d.entries, e)
	d.lengths = append(d.lengths, byte(name))
	d.left--
	if d.left == 0 {
		d.stage = atNames
	}
	return d.checkLength()
}

// checkLength returns an error if the fragment is longer than MaxFragment, as soon as that is known.
func (d *FragmentDecoder[E]) checkLength() error {
	if d.MaxFragment == 0 || d.length <= d.MaxFragment {
		return nil
	}
	return &DecodeError{Offset: d.start, Field: "fragment", Value: d.length, Err: ErrMalformed}
}

func (d *FragmentDecoder[E]) readNames(item []byte) {
	for i := range d.entries {
		n := int(d.lengths[i])
		d.entries[i] = d.entries[i].named(item[:n:n])
		item = item[n:]
	}
	d.begin()
}

// decodeFragments decodes a whole response that comes in fragments.
func decodeFragments[E FragmentEntry[E]](src []byte) (all [][]E, n int, err error) {
	var d FragmentDecoder[E]
	for !d.Done() {
		entries, took, err := d.Decode(src[n:])
		if err != nil {
			return nil, 0, err
		}
		n += took
		if entries != nil {
			all = append(all, entries)
			d.entries = nil
		}
	}
	return all, n, nil
}

// appendFragments is the inverse of decodeFragments.
func appendFragments[E FragmentEntry[E]](dst []byte, all [][]E) ([]byte, error) {
	n := 9
	for _, entries := range all {
		n += 16
		for _, e := range entries {
			n += e.size() + len(e.name())
		}
	}
	frame := appendNumbers(append(reserve(dst, n), 1), uint64(len(all)))
	for i, entries := range all {
		frame = appendNumbers(frame, uint64(i+1), uint64(len(entries)))
		for _, e := range entries {
			var err error
			if frame, err = e.append(frame); err != nil {
				return dst, err
			}
		}
		for _, e := range entries {
			frame = append(frame, e.name()...)
		}
	}
	return frame, nil
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
