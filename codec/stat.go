package codec

// Stat reads how much a record was used. A client sends it; the response is a
// [StatResponse].
//
//	09 · key length 1 · key
type Stat struct {
	Key []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpStat].
func (Stat) Op() Op { return OpStat }

// ResponseKind returns [KindStat].
func (Stat) ResponseKind() Kind { return KindStat }

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// key, dst is returned as it was.
func (m Stat) AppendBinary(dst []byte) ([]byte, error) {
	return appendKeyFrame(dst, OpStat, m.Key)
}

// StatResponse is the response to a [Stat]. A server sends it.
//
//	00
//	01 · reads per minute u64 · writes per minute u64 · reads u64 · writes u64
type StatResponse struct {
	Found bool // if false, the key is missing or expired, and the rest is zero
	Usage
}

// Kind returns [KindStat].
func (StatResponse) Kind() Kind { return KindStat }

// DecodeStatResponse decodes the response to a STAT at the start of src and returns
// it and its length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeStatResponse(src []byte) (m StatResponse, n int, err error) {
	ok, err := found(src)
	if err != nil {
		return m, 0, err
	}
	if !ok {
		return m, 1, nil
	}
	n = 1 + usageSize
	if len(src) < n {
		return m, 0, ErrShort
	}
	return StatResponse{Found: true, Usage: getUsage(src[1:])}, n, nil
}

// AppendBinary appends the frame to dst. It never fails.
func (m StatResponse) AppendBinary(dst []byte) ([]byte, error) {
	if !m.Found {
		return append(dst, 0), nil
	}
	return m.Usage.append(append(dst, 1)), nil
}
