package codec

// Set stores a buffer: a record whose value is bytes. It creates or overwrites one. A
// client sends it; the response is a [Status]. It fails if the key is a counter's, and for
// some 10 s after the key's record has expired (H1).
//
//	05 · unit 1 · amount N · key length 1 · value length N · key · value
type Set[T Value] struct {
	TTL   TTL[T] // how long the buffer lives
	Key   []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
	Value []byte // its length fits T, and the frame MaxFrame; aliases the input when decoded
}

// Op returns [OpSet].
func (Set[T]) Op() Op { return OpSet }

// ResponseKind returns [KindStatus].
func (Set[T]) ResponseKind() Kind { return KindStatus }

func (Set[T]) valueSize() int { return Size[T]() }

// decodeSet decodes a SET.
func decodeSet[T Value](src []byte) (m Set[T], n int, err error) {
	size := Size[T]()
	head := 3 + 2*size
	if len(src) < head {
		return m, 0, ErrShort
	}
	value := head + int(src[2+size])
	n, err = frameLength(value, uint64(getValue[T](src[3+size:])))
	if err != nil {
		return m, 0, err
	}
	if len(src) < n {
		return m, 0, ErrShort
	}
	m.TTL.Unit = Unit(src[1])
	m.TTL.Amount = getValue[T](src[2:])
	m.Key = src[head:value:value]
	m.Value = src[value:n:n]
	return m, n, nil
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// key, the value or the frame, dst is returned as it was.
func (m Set[T]) AppendBinary(dst []byte) ([]byte, error) {
	size := Size[T]()
	head := 3 + 2*size
	if err := checkPayload[T](OpSet, "key", m.Key, "value", m.Value, head); err != nil {
		return dst, err
	}
	dst = reserve(dst, head+len(m.Key)+len(m.Value))
	b := dst[len(dst) : len(dst)+head]
	b[0], b[1] = byte(OpSet), byte(m.TTL.Unit)
	putValue(b[2:], m.TTL.Amount)
	b[2+size] = byte(len(m.Key))
	putValue(b[3+size:], T(len(m.Value)))
	dst = append(dst[:len(dst)+head], m.Key...)
	return append(dst, m.Value...), nil
}
