package codec

// Query reads a counter. A client sends it; the response is a [QueryResponse].
//
//	02 · key length 1 · key
type Query struct {
	Key []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpQuery].
func (Query) Op() Op { return OpQuery }

// ResponseKind returns [KindQuery].
func (Query) ResponseKind() Kind { return KindQuery }

// DecodeQuery decodes the QUERY at the start of src and returns it and its
// length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeQuery(src []byte) (m Query, n int, err error) {
	m.Key, n, err = decodeKeyFrame(src, OpQuery)
	return m, n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// key, dst is returned as it was.
func (m Query) AppendBinary(dst []byte) ([]byte, error) {
	return appendKeyFrame(dst, OpQuery, m.Key)
}

// QueryResponse is the response to a [Query]. A server sends it.
//
//	00
//	01 · quota N · unit 1 · amount N
//
// The amount is what remains of the TTL, rounded down to the unit that the record was
// created with: for a live record it can be 0. For a buffer (see [Set]) the quota is 0.
type QueryResponse[T Value] struct {
	Found bool   // if false, the key is missing or expired, and the rest is zero
	Quota T      // the counter's value
	TTL   TTL[T] // what remains
}

// Kind returns [KindQuery].
func (QueryResponse[T]) Kind() Kind { return KindQuery }

func (QueryResponse[T]) valueSize() int { return Size[T]() }

// DecodeQueryResponse decodes the response to a QUERY at the start of src and
// returns it and its length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeQueryResponse[T Value](src []byte) (m QueryResponse[T], n int, err error) {
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
	n = 2 + 2*size
	if len(src) < n {
		return m, 0, ErrShort
	}
	return QueryResponse[T]{
		Found: true,
		Quota: getValue[T](src[1:]),
		TTL:   TTL[T]{Amount: getValue[T](src[2+size:]), Unit: Unit(src[1+size])},
	}, n, nil
}

// AppendBinary appends the frame to dst. It never fails.
func (m QueryResponse[T]) AppendBinary(dst []byte) ([]byte, error) {
	if !m.Found {
		return append(dst, 0), nil
	}
	size := Size[T]()
	n := 2 + 2*size
	dst = reserve(dst, n)
	b := dst[len(dst) : len(dst)+n]
	b[0] = 1
	putValue(b[1:], m.Quota)
	b[1+size] = byte(m.TTL.Unit)
	putValue(b[2+size:], m.TTL.Amount)
	return dst[:len(dst)+n], nil
}
