package codec

// WhoAmI reads the id of the connection. A client sends it; the response is a
// [WhoAmIResponse].
//
//	18
type WhoAmI struct{}

// Op returns [OpWhoAmI].
func (WhoAmI) Op() Op { return OpWhoAmI }

// ResponseKind returns [KindWhoAmI].
func (WhoAmI) ResponseKind() Kind { return KindWhoAmI }

// AppendBinary appends the frame to dst. It never fails.
func (WhoAmI) AppendBinary(dst []byte) ([]byte, error) {
	return append(dst, byte(OpWhoAmI)), nil
}

// WhoAmIResponse is the response to a [WhoAmI]. A server sends it.
//
//	01 · id 16
type WhoAmIResponse struct {
	ID ConnID
}

// Kind returns [KindWhoAmI].
func (WhoAmIResponse) Kind() Kind { return KindWhoAmI }

// DecodeWhoAmIResponse decodes the response to a WHOAMI at the start of src and
// returns it and its length, 17. Errors: [ErrShort], [ErrMalformed].
func DecodeWhoAmIResponse(src []byte) (m WhoAmIResponse, n int, err error) {
	if err := expectSuccess(src); err != nil {
		return m, 0, err
	}
	n = 1 + len(m.ID)
	if len(src) < n {
		return m, 0, ErrShort
	}
	copy(m.ID[:], src[1:])
	return m, n, nil
}

// AppendBinary appends the frame to dst. It never fails.
func (m WhoAmIResponse) AppendBinary(dst []byte) ([]byte, error) {
	dst = reserve(dst, 1+len(m.ID))
	dst = append(dst, 1)
	return append(dst, m.ID[:]...), nil
}
