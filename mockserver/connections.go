package mockserver

import (
	"cmp"
	"crypto/rand"
	"net"
	"slices"

	"github.com/throttr-go/throttr/codec"
)

// newID returns a random UUID (RFC 9562, version 4), as a real server does.
func newID() (id codec.ConnID) {
	rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

func (p *sized[T]) whoami(x *exchange, _ codec.WhoAmI) error {
	x.respond(codec.WhoAmIResponse{ID: x.conn.id})
	return nil
}

func (p *sized[T]) connection(x *exchange, m codec.Connection) error {
	res := codec.ConnectionResponse{}
	for c := range x.conn.srv.conns {
		if c.id == m.ID && !c.gone {
			res = codec.ConnectionResponse{Found: true, Connection: c.info()}
		}
	}
	x.respond(res)
	x.ok = res.Found
	return nil
}

// connections lists the open connections, in the order of acceptance.
func (p *sized[T]) connections(x *exchange, _ codec.Connections) error {
	var open []*conn
	for c := range x.conn.srv.conns {
		if !c.gone {
			open = append(open, c)
		}
	}
	slices.SortFunc(open, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	entries := make([]codec.ConnectionInfo, len(open))
	for i, c := range open {
		entries[i] = c.info()
	}
	x.respond(codec.ConnectionsResponse{Fragments: fragments(entries, func(codec.ConnectionInfo) int { return 237 })})
	return nil
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
