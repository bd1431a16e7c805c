package codec

// Connection describes an open connection of the server. A client sends it; the response
// is a [ConnectionResponse].
//
//	15 · id 16
type Connection struct {
	ID ConnID
}

// Op returns [OpConnection].
func (Connection) Op() Op { return OpConnection }

// ResponseKind returns [KindConnection].
func (Connection) ResponseKind() Kind { return KindConnection }

// decodeConnection decodes a CONNECTION.
func decodeConnection(src []byte) (m Connection, n int, err error) {
	n = 1 + len(m.ID)
	if len(src) < n {
		return m, 0, ErrShort
	}
	copy(m.ID[:], src[1:])
	return m, n, nil
}

// AppendBinary appends the frame to dst. It never fails.
func (m Connection) AppendBinary(dst []byte) ([]byte, error) {
	dst = reserve(dst, 1+len(m.ID))
	dst = append(dst, byte(OpConnection))
	return append(dst, m.ID[:]...), nil
}

// ConnectionResponse is the response to a [Connection]. A server sends it.
//
//	00
//	01 · entry 237, see ConnectionInfo
type ConnectionResponse struct {
	Found      bool // if false, no open connection has the id, and the rest is zero
	Connection ConnectionInfo
}

// Kind returns [KindConnection].
func (ConnectionResponse) Kind() Kind { return KindConnection }

// DecodeConnectionResponse decodes the response to a CONNECTION at the start of src
// and returns it and its length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeConnectionResponse(src []byte) (m ConnectionResponse, n int, err error) {
	ok, err := found(src)
	if err != nil {
		return m, 0, err
	}
	if !ok {
		return m, 1, nil
	}
	n = 1 + connectionSize
	if len(src) < n {
		return m, 0, ErrShort
	}
	m.Found = true
	m.Connection, err = m.Connection.decode(src[1:], nil)
	return m, n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the IP,
// dst is returned as it was.
func (m ConnectionResponse) AppendBinary(dst []byte) ([]byte, error) {
	if !m.Found {
		return append(dst, 0), nil
	}
	frame, err := m.Connection.append(append(reserve(dst, 1+connectionSize), 1))
	if err != nil {
		return dst, err
	}
	return frame, nil
}
