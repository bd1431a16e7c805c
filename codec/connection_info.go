package codec

import (
	"encoding/binary"
	"encoding/hex"
)

// ConnID is the id that a server gave to a connection.
type ConnID [16]byte

// String returns the id as the server writes it: 32 lowercase hexadecimal
// digits. This is also the name of the connection's own channel.
func (id ConnID) String() string { return hex.EncodeToString(id[:]) }

// ConnectionType is the kind of peer at the other end of a connection.
type ConnectionType byte

// The types of the protocol.
const (
	ClientConnection ConnectionType = 0x00
	AgentConnection  ConnectionType = 0x01
)

// String returns "client", "agent", or the number of an unknown type.
func (t ConnectionType) String() string {
	return name(t, []string{ClientConnection: "client", AgentConnection: "agent"}, "type")
}

// Transport is the transport of a connection.
type Transport byte

// The transports of the protocol.
const (
	TCP  Transport = 0x00
	Unix Transport = 0x01
)

// String returns "tcp", "unix", or the number of an unknown transport.
func (t Transport) String() string { return name(t, []string{TCP: "tcp", Unix: "unix"}, "transport") }

// RequestCounts is how many requests of each kind a connection has sent. The fields are
// in the order of the wire.
type RequestCounts struct {
	Insert, Set, Query, Get, Update, Purge, List, Info, Stat, Stats,
	Publish, Subscribe, Unsubscribe, Connections, Connection, Channels, Channel, WhoAmI uint64
}

// ConnectionInfo describes an open connection.
//
//	id 16 · type 1 · transport 1 · IP version 1 · IP 16 (text, NUL padded) · port 2 ·
//	connected u64 · 6 × bytes u64 · 18 × requests u64
type ConnectionInfo struct {
	ID             ConnID
	Type           ConnectionType
	Transport      Transport
	IPVersion      uint8  // 4 or 6
	IP             string // as text, such as "127.0.0.1"; at most 16 bytes
	Port           uint16
	Connected      uint64 // when it was accepted, in ns since 1970
	ReadBytes      uint64 // received from it
	WriteBytes     uint64 // sent to it
	PublishedBytes uint64 // of the payloads that it published and received itself
	ReceivedBytes  uint64 // of the payloads that it received from others
	AllocatedBytes uint64 // 0 in all responses of real servers
	ConsumedBytes  uint64 // 0 in all responses of real servers
	Requests       RequestCounts
}

const (
	connectionSize = 37 + 25*8
	maxIP          = 16
)

// numbers returns the 64-bit numbers, in the order of the wire.
func (c *ConnectionInfo) numbers() [25]*uint64 {
	r := &c.Requests
	return [...]*uint64{
		&c.Connected,
		&c.ReadBytes, &c.WriteBytes, &c.PublishedBytes, &c.ReceivedBytes, &c.AllocatedBytes, &c.ConsumedBytes,
		&r.Insert, &r.Set, &r.Query, &r.Get, &r.Update, &r.Purge, &r.List, &r.Info, &r.Stat, &r.Stats,
		&r.Publish, &r.Subscribe, &r.Unsubscribe, &r.Connections, &r.Connection, &r.Channels, &r.Channel, &r.WhoAmI,
	}
}

func (ConnectionInfo) size() int { return connectionSize }

func (ConnectionInfo) name() []byte { return nil }

func (ConnectionInfo) nameLength([]byte) int { return 0 }

func (ConnectionInfo) decode(b, _ []byte) (c ConnectionInfo, err error) {
	copy(c.ID[:], b)
	c.Type = ConnectionType(b[16])
	c.Transport = Transport(b[17])
	c.IPVersion = b[18]
	c.IP = text(b[19:35])
	c.Port = binary.LittleEndian.Uint16(b[35:])
	numbers := c.numbers()
	getNumbers(b[37:], numbers[:]...)
	return c, nil
}

func (c ConnectionInfo) append(dst []byte) ([]byte, error) {
	if len(c.IP) > maxIP {
		return dst, &SizeError{Op: OpConnection, Field: "IP", Size: len(c.IP), Max: maxIP}
	}
	dst = append(dst, c.ID[:]...)
	dst = append(dst, byte(c.Type), byte(c.Transport), c.IPVersion)
	dst = appendText(dst, c.IP, maxIP)
	dst = binary.LittleEndian.AppendUint16(dst, c.Port)
	for _, v := range c.numbers() {
		dst = binary.LittleEndian.AppendUint64(dst, *v)
	}
	return dst, nil
}
