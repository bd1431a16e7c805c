package mockserver

import (
	"maps"
	"net"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// version is the version of the server that the mock server follows.
const version = "5.0.11"

// describe executes a request about the server itself.
func (p sized[T]) describe(x *execution) {
	switch m := x.request.(type) {
	case codec.List:
		p.list(x)
	case codec.Stats:
		p.stats(x)
	case codec.Stat:
		x.key = m.Key
		res := codec.StatResponse{}
		if r := p.store.read(m.Key); r != nil {
			res = codec.StatResponse{Found: true, Usage: r.usage(p.store.minute)}
		}
		x.respond(res.Found, res)
	case codec.Info:
		x.respond(true, p.info())
	case codec.WhoAmI:
		x.respond(true, codec.WhoAmIResponse{ID: x.conn.id})
	case codec.Connection:
		res := codec.ConnectionResponse{}
		for c := range p.open() {
			if c.id == m.ID {
				res = codec.ConnectionResponse{Found: true, Connection: c.info()}
			}
		}
		x.respond(res.Found, res)
	case codec.Connections:
		var entries []codec.ConnectionInfo
		for c := range p.open() {
			entries = append(entries, c.info())
		}
		x.respond(true, codec.ConnectionsResponse{
			Fragments: fragments(entries, func(codec.ConnectionInfo) int { return 237 }),
		})
	case codec.Channels:
		x.respond(true, codec.ChannelsResponse{
			Fragments: fragments(p.channels.entries(), func(codec.ChannelsEntry) int { return 25 }),
		})
	case codec.Channel:
		subs, found := p.channels[string(m.Name)]
		res := codec.ChannelResponse{Found: found}
		for _, sub := range subs {
			res.Subscribers = append(res.Subscribers,
				codec.Subscriber{ID: sub.conn.id, Since: sub.since, ReadBytes: sub.read})
		}
		x.respond(found, res)
	}
}

func (p sized[T]) list(x *execution) {
	entries := make([]codec.ListEntry[T], 0, len(p.store.records))
	for _, r := range p.store.listed() {
		e := codec.ListEntry[T]{Key: []byte(r.key), Unit: r.unit, Expires: r.expires, Bytes: T(codec.Size[T]())}
		if r.buffer {
			e.Buffer = true
			e.Bytes = T(len(r.value))
		}
		entries = append(entries, e)
	}
	x.respond(true, codec.ListResponse[T]{
		Fragments: fragments(entries, func(e codec.ListEntry[T]) int { return 11 + len(e.Key) }),
	})
	p.store.spoil(x.frame)
}

func (p sized[T]) stats(x *execution) {
	entries := make([]codec.StatsEntry, 0, len(p.store.records))
	for _, r := range p.store.listed() {
		entries = append(entries, codec.StatsEntry{Key: []byte(r.key), Usage: r.usage(p.store.minute)})
	}
	x.respond(true, codec.StatsResponse{
		Fragments: fragments(entries, func(e codec.StatsEntry) int { return 33 + len(e.Key) }),
	})
	p.store.spoil(x.frame)
}

func (cs channels) entries() (all []codec.ChannelsEntry) {
	for _, name := range slices.Sorted(maps.Keys(cs)) {
		e := codec.ChannelsEntry{Name: []byte(name), Connections: uint64(len(cs[name]))}
		for _, sub := range cs[name] {
			e.ReadBytes += sub.read
		}
		all = append(all, e)
	}
	return all
}

// maxFragment bounds a fragment, in bytes as a real server counts them.
const maxFragment = 2048

// fragments splits entries as a real server does.
func fragments[E any](entries []E, size func(E) int) (all [][]E) {
	start, sum := 0, 0
	for i, e := range entries {
		n := size(e)
		if sum+n > maxFragment {
			all = append(all, entries[start:i])
			start, sum = i, 0
		}
		sum += n
	}
	if start < len(entries) {
		all = append(all, entries[start:])
	}
	return all
}

func (p sized[T]) info() codec.InfoResponse {
	st := &p.store
	of := func(op codec.Op) codec.Count { return p.requests[op].count(st.minute) }
	res := codec.InfoResponse{
		Timestamp: st.now / uint64(time.Second),
		Requests: codec.InfoRequests{
			Insert: of(codec.OpInsert), Query: of(codec.OpQuery), Update: of(codec.OpUpdate), Purge: of(codec.OpPurge),
			Get: of(codec.OpGet), Set: of(codec.OpSet), List: of(codec.OpList), Info: of(codec.OpInfo),
			Stats: of(codec.OpStats), Stat: of(codec.OpStat), Subscribe: of(codec.OpSubscribe),
			Unsubscribe: of(codec.OpUnsubscribe), Publish: of(codec.OpPublish), Channel: of(codec.OpChannel),
			Channels: of(codec.OpChannels), WhoAmI: of(codec.OpWhoAmI), Connection: of(codec.OpConnection),
			Connections: of(codec.OpConnections),
		},
		RunningSince: st.start,
		Version:      version,
	}
	for op := range p.requests {
		n := of(codec.Op(op))
		res.Requests.All.Total += n.Total
		res.Requests.All.PerMinute += n.PerMinute
	}
	for _, r := range st.records {
		if r.buffer {
			res.Buffers++
			res.BufferBytes += uint64(len(r.value))
		} else {
			res.Counters++
		}
	}
	res.CounterBytes = res.Counters * uint64(codec.Size[T]())
	res.Keys = res.Counters + res.Buffers
	for c := range p.open() {
		res.Connections++
		// A real server does not count its bytes per minute.
		res.ReadBytes.Total += c.readBytes
		res.WriteBytes.Total += c.writeBytes
	}
	subscribed := map[*conn]bool{}
	for _, subs := range p.channels {
		res.Subscriptions += uint64(len(subs))
		for _, sub := range subs {
			subscribed[sub.conn] = true
		}
	}
	res.Channels = uint64(len(subscribed)) // as a real server counts them
	return res
}

// info describes c. The bytes that a connection has allocated and consumed stay zero, as
// on a real server.
func (c *conn) info() codec.ConnectionInfo {
	n := &c.requests
	info := codec.ConnectionInfo{
		ID: c.id, IPVersion: 4, IP: "127.0.0.1", Connected: c.since,
		ReadBytes: c.readBytes, WriteBytes: c.writeBytes, PublishedBytes: c.published, ReceivedBytes: c.received,
		Requests: codec.RequestCounts{
			Insert: n[codec.OpInsert], Set: n[codec.OpSet], Query: n[codec.OpQuery], Get: n[codec.OpGet],
			Update: n[codec.OpUpdate], Purge: n[codec.OpPurge], List: n[codec.OpList], Info: n[codec.OpInfo],
			Stat: n[codec.OpStat], Stats: n[codec.OpStats], Publish: n[codec.OpPublish],
			Subscribe:   n[codec.OpSubscribe],
			Unsubscribe: n[codec.OpUnsubscribe], Connections: n[codec.OpConnections], Connection: n[codec.OpConnection],
			Channels: n[codec.OpChannels], Channel: n[codec.OpChannel], WhoAmI: n[codec.OpWhoAmI],
		},
	}
	switch addr := c.net.RemoteAddr().(type) {
	case *net.TCPAddr:
		info.Port = uint16(addr.Port)
		info.IP = addr.IP.String()
		if addr.IP.To4() == nil {
			info.IPVersion = 6
			info.IP = info.IP[:min(len(info.IP), len(info.ID))] // all that fits
		}
	case *net.UnixAddr:
		info.Transport = codec.Unix
	}
	return info
}
