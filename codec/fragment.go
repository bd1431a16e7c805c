package codec

import (
	"encoding/binary"
	"errors"
	"iter"
	"slices"
)

// FragmentEntry is an entry of a response that comes in fragments: a [ListEntry],
// [StatsEntry], [ConnectionInfo] or [ChannelsEntry]. On the wire it has a fixed part, of a
// fixed size, and may have a name. The names of a fragment's entries follow the fixed
// parts of all of them.
type FragmentEntry[E any] interface {
	// size is the length of the fixed part in bytes.
	size() int
	// nameLength returns the length of the name in bytes, which the fixed part tells.
	nameLength(fixed []byte) int
	// decode returns the entry with a fixed part and a name.
	decode(fixed, name []byte) (E, error)

	// append appends the fixed part to dst, or returns an error.
	append(dst []byte) ([]byte, error)
	name() []byte
}

// FragmentDecoder decodes a response that comes in fragments, a fragment at a time. [ListDecoder],
// [StatsDecoder], [ConnectionsDecoder] and [ChannelsDecoder] are its instances. The zero
// value is ready to decode one response.
//
//	01 · fragments u64 · per fragment: index u64, from 1 · n u64 · n × fixed part · n names
type FragmentDecoder[E FragmentEntry[E]] struct {
	begun   bool   // the status and the count have been decoded
	count   uint64 // of fragments in the response
	index   uint64 // of the last fragment that was decoded, from 1
	offset  int64  // of the next fragment in the response
	need    int    // how many bytes the next fragment has at least, as far as it tells; 0: its head has not arrived
	entries []E    // of the last fragment
	err     error  // at this and every later call
}

// fragmentHead is the length of a fragment's index and number of entries in bytes.
const fragmentHead = 16

// Decode decodes the next fragment once src holds all of it, and returns its entries and how many bytes it
// took. The next src must begin with the bytes that it did not take. The fragments of real servers have less
// than 24 KiB, but the protocol does not bound them: a [*ShortError] tells how long the next one is.
//
// The entries are nil if the response has no fragments, and not if a fragment has no entries. They are valid
// until the next call, and until src is overwritten.
//
// Errors: [ErrShort] if it needs more bytes, though it may have taken some, as a [*ShortError] once the
// fragment's number of entries is there; [ErrMalformed], with the offset in the response, at this and every later call.
func (d *FragmentDecoder[E]) Decode(src []byte) (entries []E, n int, err error) {
	err = d.err
	if err == nil && !d.begun {
		n, err = d.begin(src)
	}
	if err == nil && !d.Done() {
		var took int
		entries, took, err = d.fragment(src[n:])
		n += took
	}
	if err != nil && !errors.Is(err, ErrShort) {
		d.err = err
		return nil, 0, err
	}
	return entries, n, err
}

// Done reports whether the response is complete.
func (d *FragmentDecoder[E]) Done() bool { return d.begun && d.index == d.count }

// begin decodes the status and the count.
func (d *FragmentDecoder[E]) begin(src []byte) (n int, err error) {
	if err := expectSuccess(src); err != nil {
		return 0, err
	}
	if len(src) < 9 {
		return 0, ErrShort
	}
	d.begun = true
	d.count = binary.LittleEndian.Uint64(src[1:])
	d.offset = 9
	return 9, nil
}

// fragment decodes the fragment at the start of src. It allocates nothing for entries before all of it is there.
func (d *FragmentDecoder[E]) fragment(src []byte) (entries []E, n int, err error) {
	if len(src) < fragmentHead {
		return nil, 0, ErrShort
	}
	if index := binary.LittleEndian.Uint64(src); index != d.index+1 {
		return nil, 0, &DecodeError{Offset: d.offset, Field: "fragment index", Value: index, Err: ErrMalformed}
	}
	var e E
	count := binary.LittleEndian.Uint64(src[8:])
	names := lengthOf(fragmentHead, count, e.size())
	d.need = max(d.need, names)
	if len(src) < d.need {
		return nil, 0, &ShortError{d.need}
	}
	n = names
	for fixed := range slices.Chunk(src[fragmentHead:names], e.size()) {
		n += e.nameLength(fixed)
	}
	d.need = n // so that the names are added up once, in however many pieces they arrive
	if len(src) < n {
		return nil, 0, &ShortError{n}
	}
	if err := d.decodeEntries(src[fragmentHead:names], src[names:n]); err != nil {
		return nil, 0, err
	}
	d.index++
	d.offset += int64(n)
	d.need = 0
	return d.entries, n, nil
}

// decodeEntries decodes the fixed parts and the names of a fragment's entries.
func (d *FragmentDecoder[E]) decodeEntries(parts, names []byte) error {
	var e E
	if d.entries == nil {
		d.entries = []E{} // allocates nothing: an empty fragment has fewer bytes than an entry
	}
	d.entries = slices.Grow(d.entries[:0], len(parts)/e.size())
	for i := 0; i < len(parts); i += e.size() {
		fixed := parts[i : i+e.size()]
		name := e.nameLength(fixed)
		entry, err := e.decode(fixed, names[:name:name])
		if err != nil {
			return at(d.offset+fragmentHead+int64(i), err)
		}
		d.entries = append(d.entries, entry)
		names = names[name:]
	}
	return nil
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
