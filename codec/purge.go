package codec

// Purge removes a record. A client sends it; the response is a [Status]. It fails if the
// key is missing or expired.
//
//	04 · key length 1 · key
type Purge struct {
	Key []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpPurge].
func (Purge) Op() Op { return OpPurge }

// ResponseKind returns [KindStatus].
func (Purge) ResponseKind() Kind { return KindStatus }

// DecodePurge decodes the PURGE at the start of src and returns it and its
// length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodePurge(src []byte) (m Purge, n int, err error) {
	m.Key, n, err = decodeKeyFrame(src, OpPurge)
	return m, n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// key, dst is returned as it was.
func (m Purge) AppendBinary(dst []byte) ([]byte, error) {
	return appendKeyFrame(dst, OpPurge, m.Key)
}
