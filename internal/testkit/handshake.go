package testkit

import (
	"io"
	"net"

	"github.com/throttr-go/throttr/codec"
)

// HandshakeResponses returns what a server without records, whose values have size bytes, responds to
// the first two writes of a connection: to the probe and what follows it, and to the UNSUBSCRIBE from
// the channel of its own id.
func HandshakeResponses(size int) (first, second []byte) {
	first = map[int][]byte{1: {1, 1, 0, 0, 0}, 2: {1, 0, 1, 0, 0}, 4: {1, 0, 0, 1, 0}, 8: {1, 0, 0, 0, 1}}[size]
	id := codec.ConnID{7}
	first = append(first, 0, 1, 1) // to QUERY, to UNSUBSCRIBE, and the first byte of that to WHOAMI
	return append(first, id[:]...), []byte{1}
}

// Handshake plays the server's part in the handshake of a connection.
func Handshake(nc net.Conn, size int) error {
	probe, err := codec.AppendProbe(nil, make([]byte, 16))
	if err != nil {
		return err
	}
	first, second := HandshakeResponses(size)
	rounds := []struct {
		request  int // its length
		response []byte
	}{
		{len(probe) + len("\x02\x00\x12\x01*\x18"), first},
		{2 + 2*len(codec.ConnID{}), second},
	}
	for _, r := range rounds {
		if _, err := io.ReadFull(nc, make([]byte, r.request)); err != nil {
			return err
		}
		if _, err := nc.Write(r.response); err != nil {
			return err
		}
	}
	return nil
}
