package throttr

import (
	"net/netip"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
)

func serverInfo(server string, r codec.InfoResponse) inspect.Info {
	return inspect.Info{
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

func keyStatsEntry(server string, e codec.StatsEntry) inspect.KeyUsage {
	return inspect.KeyUsage{Server: server, Key: string(e.Key), Usage: inspect.Usage(e.Usage)}
}

func listEntry[T codec.Value](server string, e codec.ListEntry[T]) inspect.Record {
	kind := inspect.Counter
	if e.Buffer {
		kind = inspect.Buffer
	}
	return inspect.Record{
		Server: server, Key: string(e.Key), Kind: kind,
		Unit: e.Unit, ExpiresAt: unixTime(e.Expires), BytesUsed: uint64(e.Bytes),
	}
}

func connectionEntry(server string, e codec.ConnectionInfo) inspect.Connection {
	entry := inspect.Connection{
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

func channelEntry(server string, e codec.ChannelsEntry) inspect.Channel {
	return inspect.Channel{
		Server: server, Name: string(e.Name),
		ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes, Connections: e.Connections,
	}
}

func subscriber(server string, e codec.Subscriber) inspect.Subscriber {
	return inspect.Subscriber{
		Server: server, ID: e.ID, Since: unixTime(e.Since), ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes,
	}
}

// unixTime returns the time of a server's count of ns since 1970.
func unixTime(ns uint64) time.Time {
	const second = uint64(time.Second)
	return time.Unix(int64(ns/second), int64(ns%second)).UTC()
}
