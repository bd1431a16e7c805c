package codec

// Attribute is what an [Update] changes, one byte on the wire.
type Attribute byte

// The attributes of the protocol.
const (
	// Quota is the number that the counter holds.
	Quota Attribute = 0x00
	// TimeToLive is the record's TTL, in the unit that it was created with.
	TimeToLive Attribute = 0x01
)

// String returns "QUOTA", "TTL", or the number of an unknown attribute.
func (a Attribute) String() string {
	return name(a, []string{Quota: "QUOTA", TimeToLive: "TTL"}, "attribute")
}

// Change is how an [Update] changes an attribute, one byte on the wire.
type Change byte

// The changes of the protocol.
const (
	// Patch sets the quota, or lets the record expire Value units from now.
	Patch Change = 0x00
	// Increase adds. A quota beyond the largest value wraps around to zero, and the UPDATE
	// succeeds (H3).
	Increase Change = 0x01
	// Decrease subtracts. If a quota would fall below zero, it stays as it is, and the
	// UPDATE fails.
	Decrease Change = 0x02
)

// String returns "PATCH", "INCREASE", "DECREASE", or the number of an unknown
// change.
func (c Change) String() string {
	return name(c, []string{Patch: "PATCH", Increase: "INCREASE", Decrease: "DECREASE"}, "change")
}

// Update changes a counter's quota or a record's TTL. A client sends it; the response is a
// [Status]. It fails if the key is missing or expired, if a quota would fall below zero, if
// the quota is a buffer's, or if the attribute is unknown. With an unknown change it succeeds
// and changes nothing.
//
//	03 · attribute 1 · change 1 · value N · key length 1 · key
type Update[T Value] struct {
	Attribute Attribute
	Change    Change
	Value     T      // an amount of quota, or of units of the record's TTL
	Key       []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpUpdate].
func (Update[T]) Op() Op { return OpUpdate }

// ResponseKind returns [KindStatus].
func (Update[T]) ResponseKind() Kind { return KindStatus }

func (Update[T]) valueSize() int { return Size[T]() }

// DecodeUpdate decodes the UPDATE at the start of src and returns it and its
// length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeUpdate[T Value](src []byte) (m Update[T], n int, err error) {
	size := Size[T]()
	if len(src) == 0 {
		return m, 0, ErrShort
	}
	if src[0] != byte(OpUpdate) {
		return m, 0, wrongOp(src[0])
	}
	head := 4 + size
	if len(src) < head {
		return m, 0, ErrShort
	}
	n = head + int(src[head-1])
	if len(src) < n {
		return m, 0, ErrShort
	}
	m.Attribute = Attribute(src[1])
	m.Change = Change(src[2])
	m.Value = getValue[T](src[3:])
	m.Key = src[head:n:n]
	return m, n, nil
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// key, dst is returned as it was.
func (m Update[T]) AppendBinary(dst []byte) ([]byte, error) {
	if len(m.Key) > MaxKey {
		return dst, keyTooLong(OpUpdate, m.Key)
	}
	head := 4 + Size[T]()
	n := head + len(m.Key)
	dst = reserve(dst, n)
	b := dst[len(dst) : len(dst)+n]
	_ = b[head-1] // one bounds check for the whole head
	b[0] = byte(OpUpdate)
	b[1] = byte(m.Attribute)
	b[2] = byte(m.Change)
	putValue(b[3:], m.Value)
	b[head-1] = byte(len(m.Key))
	copy(b[head:], m.Key)
	return dst[:len(dst)+n], nil
}
