package codec

// Status is the response to INSERT, UPDATE, PURGE, SET, SUBSCRIBE, UNSUBSCRIBE and
// PUBLISH. A server sends it.
//
//	00 for failure, 01 for success
type Status bool

// The two statuses.
const (
	Success Status = true
	Failure Status = false
)

// Kind returns [KindStatus].
func (Status) Kind() Kind { return KindStatus }

// DecodeStatus decodes the status at the start of src and returns it and its
// length, 1. Errors: [ErrShort], [ErrMalformed].
func DecodeStatus(src []byte) (Status, int, error) {
	if len(src) == 0 {
		return Failure, 0, ErrShort
	}
	if src[0] > 1 {
		return Failure, 0, wrongStatus(src[0])
	}
	return src[0] == 1, 1, nil
}

// found decodes the status byte of a response that has more bytes only on success.
func found(src []byte) (bool, error) {
	ok, _, err := DecodeStatus(src)
	return bool(ok), err
}

// expectSuccess decodes the status byte of a response that is always a success.
func expectSuccess(src []byte) error {
	if len(src) == 0 {
		return ErrShort
	}
	if src[0] != 1 {
		return wrongStatus(src[0])
	}
	return nil
}

// AppendBinary appends the byte to dst. It never fails.
func (s Status) AppendBinary(dst []byte) ([]byte, error) {
	if s {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}
