package codec

// Get reads a buffer. A client sends it; the response is a [GetResponse].
//
//	06 · key length 1 · key
type Get struct {
	Key []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpGet].
func (Get) Op() Op { return OpGet }

// ResponseKind returns [KindGet].
func (Get) ResponseKind() Kind { return KindGet }

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// key, dst is returned as it was.
func (m Get) AppendBinary(dst []byte) ([]byte, error) {
	return appendKeyFrame(dst, OpGet, m.Key)
}

// GetResponse is the response to a [Get]. A server sends it.
//
//	00
//	01 · unit 1 · amount N · value length N · value
//
// For a counter the value is empty.
type GetResponse[T Value] struct {
	Found bool   // if false, the key is missing or expired, and the rest is zero
	TTL   TTL[T] // what remains, rounded down to the record's unit
	Value []byte // aliases the input when decoded
}

// Kind returns [KindGet].
func (GetResponse[T]) Kind() Kind { return KindGet }

func (GetResponse[T]) valueSize() int { return Size[T]() }

// DecodeGetResponse decodes the response to a GET at the start of src and returns
// it and its length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeGetResponse[T Value](src []byte) (m GetResponse[T], n int, err error) {
	if len(src) == 0 {
		return m, 0, ErrShort
	}
	switch src[0] {
	case 0:
		return m, 1, nil
	case 1:
	default:
		return m, 0, wrongStatus(src[0])
	}
	size := Size[T]()
	head := 2 + 2*size
	if len(src) < head {
		return m, 0, ErrShort
	}
	n, err = frameLength(head, uint64(getValue[T](src[2+size:])))
	if err != nil {
		return m, 0, err
	}
	if len(src) < n {
		return m, 0, ErrShort
	}
	m.Found = true
	m.TTL.Unit = Unit(src[1])
	m.TTL.Amount = getValue[T](src[2:])
	m.Value = src[head:n:n]
	return m, n, nil
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// value or the frame, dst is returned as it was.
func (m GetResponse[T]) AppendBinary(dst []byte) ([]byte, error) {
	if !m.Found {
		return append(dst, 0), nil
	}
	size := Size[T]()
	head := 2 + 2*size
	if err := checkPayload[T](OpGet, "key", nil, "value", m.Value, head); err != nil {
		return dst, err
	}
	dst = reserve(dst, head+len(m.Value))
	b := dst[len(dst) : len(dst)+head]
	b[0], b[1] = 1, byte(m.TTL.Unit)
	putValue(b[2:], m.TTL.Amount)
	putValue(b[2+size:], T(len(m.Value)))
	return append(dst[:len(dst)+head], m.Value...), nil
}
