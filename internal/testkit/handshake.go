package testkit

import (
	"io"
	"net"
	"slices"

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

// Handshake plays the server's part in the handshake of a connection, whose writes it must be able to
// read one by one.
func Handshake(nc net.Conn, size int) error {
	probe, err := codec.AppendProbe(nil, make([]byte, 16))
	if err != nil {
		return err
	}
	n, err := nc.Read(make([]byte, 1024))
	if err != nil {
		return err
	}
	first, second := HandshakeResponses(size)
	if n == len(probe)+len("\x02\x00\x18") { // the connection is for subscriptions, and keeps them
		_, err := nc.Write(slices.Delete(first, codec.ProbeResponses+1, codec.ProbeResponses+2))
		return err
	}
	if _, err := nc.Write(first); err != nil {
		return err
	}
	if _, err := io.ReadFull(nc, make([]byte, 2+2*len(codec.ConnID{}))); err != nil {
		return err
	}
	_, err = nc.Write(second)
	return err
}
