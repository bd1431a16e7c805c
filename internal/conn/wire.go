package conn

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/throttr-go/throttr/codec"
)

// The frames that depend on the value size, with values of any size. A client can't send them as they are: see Size.
type (
	// Insert is a [codec.Insert].
	Insert codec.Insert[uint64]
	// Update is a [codec.Update].
	Update codec.Update[uint64]
	// Event is a [codec.Event].
	Event codec.Event[uint64]
	// TTL is a [codec.TTL].
	TTL = codec.TTL[uint64]
	// Record is an entry of a LIST.
	Record = codec.ListEntry[uint64]
)

// Response is a decoded response of any kind.
type Response struct {
	OK    bool // success, or found
	Quota uint64
	TTL   TTL
	Value []byte // of a GET, a copy of the value; of a rarer request, a copy of the response
}

// Size is the value size of a server. It encodes and decodes the frames that depend on it, for code that learns the
// size at run time.
type Size interface {
	// Bytes returns the size in bytes: 1, 2, 4 or 8.
	Bytes() int
	// Largest returns the largest value.
	Largest() uint64
	// AppendInsert and AppendUpdate append a frame to dst. A value that is too large is an error, and so is a key: then
	// they return dst as it was.
	AppendInsert(dst []byte, m Insert) ([]byte, error)
	AppendUpdate(dst []byte, m Update) ([]byte, error)
	// Decode decodes a response of the given kind from the start of src and returns its size. Errors are those of
	// [codec.DecodeResponse].
	Decode(kind codec.Kind, src []byte) (Response, int, error)
	// DecodeEvent decodes an EVENT, which aliases src.
	DecodeEvent(src []byte) (Event, int, error)
	// Records returns a decoder of the response to a LIST.
	Records() RecordDecoder
}

// RecordDecoder decodes the response to a LIST as [codec.ListDecoder] does.
type RecordDecoder interface {
	Decode(src []byte) (entries []Record, n int, err error)
	Done() bool
}

// SizeOf returns the Size of so many bytes.
func SizeOf(bytes int) Size {
	switch bytes {
	case 1:
		return sized[uint8]{}
	case 2:
		return sized[uint16]{}
	case 4:
		return sized[uint32]{}
	default:
		return sized[uint64]{}
	}
}

// sized is the Size of T.
type sized[T codec.Value] struct{}

// Bytes implements [Size].
func (sized[T]) Bytes() int { return codec.Size[T]() }

// Largest implements [Size].
func (sized[T]) Largest() uint64 { return uint64(^T(0)) }

// AppendInsert implements [Size].
func (s sized[T]) AppendInsert(dst []byte, m Insert) ([]byte, error) {
	if err := cmp.Or(s.check("Quota", m.Quota), s.check("TTL", m.TTL.Amount)); err != nil {
		return dst, err
	}
	ttl := codec.TTL[T]{Amount: T(m.TTL.Amount), Unit: m.TTL.Unit}
	return codec.Insert[T]{Key: m.Key, Quota: T(m.Quota), TTL: ttl}.AppendBinary(dst)
}

// AppendUpdate implements [Size].
func (s sized[T]) AppendUpdate(dst []byte, m Update) ([]byte, error) {
	if err := s.check("Value", m.Value); err != nil {
		return dst, err
	}
	return codec.Update[T]{Attribute: m.Attribute, Change: m.Change, Value: T(m.Value), Key: m.Key}.AppendBinary(dst)
}

// check returns an error unless T holds the value of a field.
func (s sized[T]) check(field string, value uint64) error {
	if value > s.Largest() {
		return fmt.Errorf("throttr: %s is %d, must be at most %d: values have %d bytes", field, value, s.Largest(), s.Bytes())
	}
	return nil
}

// Decode implements [Size].
func (sized[T]) Decode(kind codec.Kind, src []byte) (r Response, n int, err error) {
	switch kind {
	case codec.KindStatus:
		s, n, err := codec.DecodeStatus(src)
		return Response{OK: bool(s)}, n, err
	case codec.KindQuery:
		q, n, err := codec.DecodeQueryResponse[T](src)
		return Response{OK: q.Found, Quota: uint64(q.Quota), TTL: widen(q.TTL)}, n, err
	case codec.KindGet:
		g, n, err := codec.DecodeGetResponse[T](src)
		r := Response{OK: g.Found, TTL: widen(g.TTL)}
		if err == nil && g.Found {
			r.Value = append([]byte{}, g.Value...)
		}
		return r, n, err
	default: // the caller decodes it again
		_, n, err := codec.DecodeResponse[T](kind, src)
		if err == nil {
			r.Value = append([]byte{}, src[:n]...)
		}
		return r, n, err
	}
}

func widen[T codec.Value](t codec.TTL[T]) TTL { return TTL{Amount: uint64(t.Amount), Unit: t.Unit} }

// DecodeEvent implements [Size].
func (sized[T]) DecodeEvent(src []byte) (Event, int, error) {
	e, n, err := codec.DecodeEvent[T](src)
	return Event(e), n, err
}

// Records implements [Size].
func (sized[T]) Records() RecordDecoder { return new(recordDecoder[T]) }

// recordDecoder is the RecordDecoder of T.
type recordDecoder[T codec.Value] struct {
	codec.ListDecoder[T]
	records []Record
}

// Decode implements [RecordDecoder].
func (d *recordDecoder[T]) Decode(src []byte) ([]Record, int, error) {
	entries, n, err := d.ListDecoder.Decode(src)
	d.records = slices.Grow(d.records[:0], len(entries)) // and no more, for MaxResponse bounds what they take
	for _, e := range entries {
		d.records = append(d.records,
			Record{Key: e.Key, Buffer: e.Buffer, Unit: e.Unit, Expires: e.Expires, Bytes: uint64(e.Bytes)})
	}
	return d.records, n, err
}
