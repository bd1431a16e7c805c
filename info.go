package throttr

import (
	"net/netip"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Rate is how often something has happened: since the server started, and in the last whole
// minute. A server computes the latter once a minute.
type Rate = codec.Count

// ServerInfo is what a server reports about itself. See [Client.Info].
type ServerInfo struct {
	Server       string    // as in Config.Servers
	Version      string    // such as "5.0.11"
	Time         time.Time // the server's clock, in whole seconds, UTC
	RunningSince time.Time // UTC

	Requests   codec.InfoRequests // a Rate for each kind
	ReadBytes  Rate               // from all connections
	WriteBytes Rate               // to all connections

	Keys          uint64 // records of both kinds
	Counters      uint64 // records that are counters
	Buffers       uint64 // records that are buffers
	CounterBytes  uint64 // used by the values of all counters
	BufferBytes   uint64 // used by the values of all buffers
	Connections   uint64 // that are open
	Subscriptions uint64 // of all connections, with those to "*" and to their own ids
	Channels      uint64 // as the server reports it; one server was seen to count its connections here
}

func serverInfo(server string, r codec.InfoResponse) ServerInfo {
	return ServerInfo{
		Server:       server,
		Version:      r.Version,
		Time:         time.Unix(int64(r.Timestamp), 0).UTC(),
		RunningSince: unixTime(r.RunningSince),

		Requests:   r.Requests,
		ReadBytes:  r.ReadBytes,
		WriteBytes: r.WriteBytes,

		Keys:          r.Keys,
		Counters:      r.Counters,
		Buffers:       r.Buffers,
		CounterBytes:  r.CounterBytes,
		BufferBytes:   r.BufferBytes,
		Connections:   r.Connections,
		Subscriptions: r.Subscriptions,
		Channels:      r.Channels,
	}
}

// KeyStats is how much a record was used. A server computes all four figures once a minute:
// none of them includes what has happened since.
type KeyStats struct {
	ReadsPerMinute  uint64 // in the last whole minute
	WritesPerMinute uint64 // in the last whole minute
	Reads           uint64
	Writes          uint64
}

// KeyStatsEntry is a record and how much it was used. See [Client.KeyStats].
type KeyStatsEntry struct {
	Server string // as in Config.Servers
	Key    string
	KeyStats
}

func keyStatsEntry(server string, e codec.StatsEntry) KeyStatsEntry {
	return KeyStatsEntry{Server: server, Key: string(e.Key), KeyStats: KeyStats(e.Usage)}
}

// Identity is the id that a server gave to a connection. See [Client.WhoAmI].
type Identity struct {
	Server string // as in Config.Servers
	ID     codec.ConnID
}

// RecordKind is what a record holds.
type RecordKind uint8

// The kinds of records.
const (
	KindCounter RecordKind = iota // see Client.Insert
	KindBuffer                    // see Client.Set
)

// String returns "counter" or "buffer".
func (k RecordKind) String() string {
	if k == KindBuffer {
		return "buffer"
	}
	return "counter"
}

// ListEntry is a record. See [Client.List].
type ListEntry struct {
	Server    string // as in Config.Servers
	Key       string
	Kind      RecordKind
	Unit      codec.Unit // of its TTL
	ExpiresAt time.Time  // the end of its TTL, UTC, by the server's clock
	BytesUsed uint64     // by its value: a buffer's length, the value size for a counter
}

func listEntry[T codec.Value](server string, e codec.ListEntry[T]) ListEntry {
	kind := KindCounter
	if e.Buffer {
		kind = KindBuffer
	}
	return ListEntry{
		Server: server, Key: string(e.Key), Kind: kind,
		Unit: e.Unit, ExpiresAt: unixTime(e.Expires), BytesUsed: uint64(e.Bytes),
	}
}

// ConnectionEntry is a connection that is open on a server, anybody's. See
// [Client.Connections].
type ConnectionEntry struct {
	Server string // as in Config.Servers
	ID     codec.ConnID
	Type   codec.ConnectionType
	Kind   codec.Transport // tcp or unix
	// Addr is the address of the other end; zero for a unix socket. A server truncates an
	// address to 16 characters: if it may have been longer, only the port is set.
	Addr        netip.AddrPort
	ConnectedAt time.Time // UTC, by the server's clock

	ReadBytes      uint64 // from the connection
	WriteBytes     uint64 // to the connection
	PublishedBytes uint64
	ReceivedBytes  uint64
	AllocatedBytes uint64
	ConsumedBytes  uint64
	Requests       codec.RequestCounts // of each kind, sent over the connection
}

func connectionEntry(server string, e codec.ConnectionInfo) ConnectionEntry {
	entry := ConnectionEntry{
		Server: server, ID: e.ID, Type: e.Type, Kind: e.Transport, ConnectedAt: unixTime(e.Connected),
		ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes,
		PublishedBytes: e.PublishedBytes, ReceivedBytes: e.ReceivedBytes,
		AllocatedBytes: e.AllocatedBytes, ConsumedBytes: e.ConsumedBytes,
		Requests: e.Requests,
	}
	if e.Transport != codec.Unix {
		entry.Addr = addrPort(e.IP, e.Port)
	}
	return entry
}

// addrPort parses an address as a server writes it. A text that fills its field may have been
// truncated, and the rest can look like another address.
func addrPort(ip string, port uint16) netip.AddrPort {
	const field = 16
	addr, err := netip.ParseAddr(ip)
	if err != nil || len(ip) >= field {
		addr = netip.Addr{}
	}
	return netip.AddrPortFrom(addr, port)
}

// ChannelEntry is a channel that somebody is subscribed to. See [Client.Channels].
type ChannelEntry struct {
	Server      string // as in Config.Servers
	Name        string
	ReadBytes   uint64 // published on it
	WriteBytes  uint64 // delivered to its subscribers
	Connections uint64 // subscribed to it, each as often as it has subscribed
}

func channelEntry(server string, e codec.ChannelsEntry) ChannelEntry {
	return ChannelEntry{
		Server: server, Name: string(e.Name),
		ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes, Connections: e.Connections,
	}
}

// Subscriber is a subscription to a channel, of any client. See [Client.Channel].
type Subscriber struct {
	Server     string // as in Config.Servers
	ID         codec.ConnID
	Since      time.Time // UTC, by the server's clock
	ReadBytes  uint64    // that it published on the channel
	WriteBytes uint64    // that were delivered to it from the channel
}

func subscriber(server string, e codec.Subscriber) Subscriber {
	return Subscriber{
		Server: server, ID: e.ID, Since: unixTime(e.Since), ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes,
	}
}

// unixTime returns the time of a server's count of ns since 1970.
func unixTime(ns uint64) time.Time {
	const second = uint64(time.Second)
	return time.Unix(int64(ns/second), int64(ns%second)).UTC()
}
