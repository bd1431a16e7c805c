package codec

import (
	"encoding/binary"
	"iter"
)

// List lists all records. A client sends it; the response is a [ListResponse].
//
//	07
type List struct{}

// Op returns [OpList].
func (List) Op() Op { return OpList }

// ResponseKind returns [KindList].
func (List) ResponseKind() Kind { return KindList }

// AppendBinary appends the frame to dst. It never fails.
func (List) AppendBinary(dst []byte) ([]byte, error) {
	return append(dst, byte(OpList)), nil
}

// ListResponse is the response to a [List]. A server sends it.
//
//	01 · fragments u64 · per fragment: index u64, from 1 · n u64 · n × entry · n keys
//	entry: key length 1 · type 1 · unit 1 · expiry u64 · bytes used N
type ListResponse[T Value] struct {
	Fragments [][]ListEntry[T] // in the order of the wire; nil if there are none
}

// Kind returns [KindList].
func (ListResponse[T]) Kind() Kind { return KindList }

func (ListResponse[T]) valueSize() int { return Size[T]() }

// All yields the entries of all fragments.
func (m ListResponse[T]) All() iter.Seq[ListEntry[T]] { return allOf(m.Fragments) }

// DecodeListResponse decodes the response to a LIST at the start of src and
// returns it and its length in bytes. A [ListDecoder] decodes a
// response that arrives in pieces. Errors: [ErrShort], [ErrMalformed].
func DecodeListResponse[T Value](src []byte) (m ListResponse[T], n int, err error) {
	m.Fragments, n, err = decodeFragments[ListEntry[T]](src)
	return m, n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for
// a key, dst is returned as it was.
func (m ListResponse[T]) AppendBinary(dst []byte) ([]byte, error) {
	return appendFragments(dst, m.Fragments)
}

// ListDecoder decodes the response to a LIST fragment by fragment.
type ListDecoder[T Value] = FragmentDecoder[ListEntry[T]]

// ListEntry is a record in a [ListResponse].
type ListEntry[T Value] struct {
	Key     []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
	Buffer  bool   // true: a buffer, type 01 (see Set); false: a counter, type 00
	Unit    Unit   // the unit of its TTL
	Expires uint64 // when its TTL ends, in ns since 1970
	Bytes   T      // a buffer's length in bytes; the value size for a counter
}

func (ListEntry[T]) size() int { return 11 + Size[T]() }

func (e ListEntry[T]) name() []byte { return e.Key }

func (ListEntry[T]) nameLength(b []byte) int { return int(b[0]) }

func (ListEntry[T]) decode(b, key []byte) (e ListEntry[T], err error) {
	if b[1] > 1 {
		return e, &DecodeError{Offset: 1, Field: "record type", Value: uint64(b[1]), Err: ErrMalformed}
	}
	e.Key = key
	e.Buffer = b[1] == 1
	e.Unit = Unit(b[2])
	e.Expires = binary.LittleEndian.Uint64(b[3:])
	e.Bytes = getValue[T](b[11:])
	return e, nil
}

func (e ListEntry[T]) append(dst []byte) ([]byte, error) {
	if len(e.Key) > MaxKey {
		return dst, keyTooLong(OpList, e.Key)
	}
	kind := byte(0)
	if e.Buffer {
		kind = 1
	}
	dst = append(dst, byte(len(e.Key)), kind, byte(e.Unit))
	dst = binary.LittleEndian.AppendUint64(dst, e.Expires)
	n := len(dst)
	dst = append(dst, make([]byte, Size[T]())...)
	putValue(dst[n:], e.Bytes)
	return dst, nil
}
