package codec

import "iter"

// Connections lists the open connections of the server. A client sends it; the response
// is a [ConnectionsResponse].
//
//	14
type Connections struct{}

// Op returns [OpConnections].
func (Connections) Op() Op { return OpConnections }

// ResponseKind returns [KindConnections].
func (Connections) ResponseKind() Kind { return KindConnections }

// AppendBinary appends the frame to dst. It never fails.
func (Connections) AppendBinary(dst []byte) ([]byte, error) {
	return append(dst, byte(OpConnections)), nil
}

// ConnectionsResponse is the response to a [Connections]. A server sends it.
//
//	01 · fragments u64 · per fragment: index u64, from 1 · n u64 · n × entry
//	entry: 237 bytes, see ConnectionInfo
type ConnectionsResponse struct {
	Fragments [][]ConnectionInfo // in the order of the wire; nil if there are none
}

// Kind returns [KindConnections].
func (ConnectionsResponse) Kind() Kind { return KindConnections }

// All yields the entries of all fragments.
func (m ConnectionsResponse) All() iter.Seq[ConnectionInfo] { return allOf(m.Fragments) }

// DecodeConnectionsResponse decodes the response to a CONNECTIONS at the start of src and
// returns it and its length in bytes. A [ConnectionsDecoder] decodes a
// response that arrives in pieces. Errors: [ErrShort], [ErrMalformed].
func DecodeConnectionsResponse(src []byte) (m ConnectionsResponse, n int, err error) {
	m.Fragments, n, err = decodeFragments[ConnectionInfo](src)
	return m, n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for
// an IP, dst is returned as it was.
func (m ConnectionsResponse) AppendBinary(dst []byte) ([]byte, error) {
	return appendFragments(dst, m.Fragments)
}

// ConnectionsDecoder decodes the response to a CONNECTIONS fragment by fragment.
type ConnectionsDecoder = FragmentDecoder[ConnectionInfo]
