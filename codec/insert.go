package codec

// Insert creates a counter. A client sends it; the response is a [Status]. It fails if the
// key exists, and for some 10 s after the key's record has expired (H1).
//
//	01 · quota N · unit 1 · amount N · key length 1 · key
type Insert[T Value] struct {
	Key   []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
	Quota T      // the counter's first value
	TTL   TTL[T] // how long it lives
}

// Op returns [OpInsert].
func (Insert[T]) Op() Op { return OpInsert }

// ResponseKind returns [KindStatus].
func (Insert[T]) ResponseKind() Kind { return KindStatus }

func (Insert[T]) valueSize() int { return Size[T]() }

// DecodeInsert decodes the INSERT at the start of src and returns it and its
// length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeInsert[T Value](src []byte) (m Insert[T], n int, err error) {
	size := Size[T]()
	if len(src) == 0 {
		return m, 0, ErrShort
	}
	if src[0] != byte(OpInsert) {
		return m, 0, wrongOp(src[0])
	}
	head := 3 + 2*size
	if len(src) < head {
		return m, 0, ErrShort
	}
	n = head + int(src[head-1])
	if len(src) < n {
		return m, 0, ErrShort
	}
	m.Quota = getValue[T](src[1:])
	m.TTL.Unit = Unit(src[1+size])
	m.TTL.Amount = getValue[T](src[2+size:])
	m.Key = src[head:n:n]
	return m, n, nil
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// key, dst is returned as it was.
func (m Insert[T]) AppendBinary(dst []byte) ([]byte, error) {
	if len(m.Key) > MaxKey {
		return dst, keyTooLong(OpInsert, m.Key)
	}
	size := Size[T]()
	head := 3 + 2*size
	n := head + len(m.Key)
	dst = reserve(dst, n)
	b := dst[len(dst) : len(dst)+n]
	_ = b[head-1] // one bounds check for the whole head
	b[0] = byte(OpInsert)
	putValue(b[1:], m.Quota)
	b[1+size] = byte(m.TTL.Unit)
	putValue(b[2+size:], m.TTL.Amount)
	b[head-1] = byte(len(m.Key))
	copy(b[head:], m.Key)
	return dst[:len(dst)+n], nil
}
