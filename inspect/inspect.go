// Package inspect has what servers report of themselves: the results of requests such as LIST, INFO and
// CONNECTIONS, which a client of package throttr sends. Servers are named as in Config.Servers of that
// package.
package inspect

import (
	"net/netip"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Count is how often something has happened: since the server started, and in the last whole
// minute. A server computes the latter once a minute.
type Count = codec.Count

// Info is what a server reports about itself. See Client.Info of package throttr.
type Info struct {
	Server       string    // as in Config.Servers
	Version      string    // such as "5.0.11"
	Time         time.Time // the server's clock, in whole seconds, UTC
	RunningSince time.Time // UTC

	Requests   codec.InfoRequests // a Count for each kind
	ReadBytes  Count              // from all connections
	WriteBytes Count              // to all connections

	Keys          uint64 // records of both kinds
	Counters      uint64 // records that are counters
	Buffers       uint64 // records that are buffers
	CounterBytes  uint64 // used by the values of all counters
	BufferBytes   uint64 // used by the values of all buffers
	Connections   uint64 // that are open
	Subscriptions uint64 // of all connections, with those to "*" and to their own ids
	Channels      uint64 // as the server reports it; one server was seen to count its connections here
}

// Usage is how much a record was used. A server computes all four figures once a minute:
// none of them includes what has happened since.
type Usage struct {
	ReadsPerMinute  uint64 // in the last whole minute
	WritesPerMinute uint64 // in the last whole minute
	Reads           uint64 // since the record was made
	Writes          uint64 // since the record was made
}

// KeyUsage is a record and how much it was used. See Client.KeyStats.
type KeyUsage struct {
	Server string // as in Config.Servers
	Key    string
	Usage
}

// Identity is the id that a server gave to a connection. See Client.WhoAmI.
type Identity struct {
	Server string // as in Config.Servers
	ID     codec.ConnID
}

// Kind is what a record holds.
type Kind uint8

// The kinds of records.
const (
	Counter Kind = iota // see Client.Insert
	Buffer              // see Client.Set
)

// String returns "buffer" for a Buffer, and "counter" for anything else.
func (k Kind) String() string {
	if k == Buffer {
		return "buffer"
	}
	return "counter"
}

// Record is a record. See Client.List.
type Record struct {
	Server    string // as in Config.Servers
	Key       string
	Kind      Kind
	Unit      codec.Unit // of its TTL
	ExpiresAt time.Time  // the end of its TTL, UTC, by the server's clock
	BytesUsed uint64     // by its value: a buffer's length, the value size for a counter
}

// Connection is a connection that is open on a server, of any client. See Client.Connections.
type Connection struct {
	Server string // as in Config.Servers
	ID     codec.ConnID
	Type   codec.ConnectionType // client or agent
	Kind   codec.Transport      // tcp or unix
	// Addr is the address of the other end; zero for a unix socket. A server truncates an
	// address to 16 characters: if it may have been longer, only the port is set.
	Addr        netip.AddrPort
	ConnectedAt time.Time // UTC, by the server's clock

	ReadBytes      uint64              // from the connection
	WriteBytes     uint64              // to the connection
	PublishedBytes uint64              // of payloads that it has published and received itself
	ReceivedBytes  uint64              // of payloads that it has received from others
	AllocatedBytes uint64              // 0 in all responses of the servers that were seen
	ConsumedBytes  uint64              // 0 in all responses of the servers that were seen
	Requests       codec.RequestCounts // of each kind, sent over the connection
}

// Channel is a channel that somebody is subscribed to. See Client.Channels.
type Channel struct {
	Server      string // as in Config.Servers
	Name        string
	ReadBytes   uint64 // published on it
	WriteBytes  uint64 // delivered to its subscribers
	Connections uint64 // subscribed to it, each as often as it has subscribed
}

// Subscriber is a subscription to a channel, of any client. See Client.Channel.
type Subscriber struct {
	Server     string // as in Config.Servers
	ID         codec.ConnID
	Since      time.Time // UTC, by the server's clock
	ReadBytes  uint64    // that it published on the channel
	WriteBytes uint64    // that were delivered to it from the channel
}

// Swept is what Client.Sweep found on one server, and what it did.
type Swept struct {
	Server  string // as in Config.Servers
	Records int    // records of windows, of all clients
	Removed int    // records of windows that were over; in a dry run, those that would be removed
	Kept    int    // records of windows that are over, but whose names clients may use again
	Foreign int    // records of other programs, up to 256
}
