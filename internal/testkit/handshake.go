package testkit

import (
	"io"
	"net"
	"slices"

	"github.com/throttr-go/throttr/codec"
)

// Handshake plays the part of a server without records, whose values have size bytes, in the handshake of a connection.
// A read of nc must return one write of the client, as that of a [net.Pipe] does. The client writes the probe and what
// follows it, and then the UNSUBSCRIBE from the channel of its own id.
func Handshake(nc net.Conn, size int) error {
	probe, err := codec.AppendProbe(nil, make([]byte, 16))
	if err != nil {
		return err
	}
	n, err := nc.Read(make([]byte, 1024))
	if err != nil {
		return err
	}
	first := map[int][]byte{1: {1, 1, 0, 0, 0}, 2: {1, 0, 1, 0, 0}, 4: {1, 0, 0, 1, 0}, 8: {1, 0, 0, 0, 1}}[size]
	id := codec.ConnID{7}
	first = append(append(first, 0, 1, 1), id[:]...) // to QUERY, to UNSUBSCRIBE, and to WHOAMI
	if n == len(probe)+len("\x02\x00\x18") {         // the connection is for subscriptions, and keeps them
		_, err := nc.Write(slices.Delete(first, codec.ProbeResponses+1, codec.ProbeResponses+2))
		return err
	}
	if _, err := nc.Write(first); err != nil {
		return err
	}
	if _, err := io.ReadFull(nc, make([]byte, 2+2*len(id))); err != nil {
		return err
	}
	_, err = nc.Write([]byte{1})
	return err
}
