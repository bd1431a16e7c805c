package mockserver

import (
	"maps"
	"slices"

	"github.com/throttr-go/throttr/codec"
)

// everyConn is a channel that every connection is subscribed to from its start. The other
// one is the channel of its own id (H8).
const everyConn = "*"

// subscription is a subscription of a connection to a channel. A connection can have
// several to the same channel (H10).
type subscription struct {
	conn  *conn
	since uint64 // ns since 1970
	read  uint64 // bytes published
}

// channels are the channels that have subscriptions. The server's lock guards them. A
// slice is never changed in place, so that a loop over it can go on while subscribers
// leave.
type channels map[string][]*subscription

func (cs channels) subscribe(c *conn, name string, now uint64) {
	cs[name] = append(cs[name], &subscription{conn: c, since: now})
	c.subscribed++
}

// unsubscribe ends all of c's subscriptions to a channel.
func (cs channels) unsubscribe(c *conn, name string) {
	before := cs[name]
	after := slices.DeleteFunc(slices.Clone(before), func(s *subscription) bool { return s.conn == c })
	c.subscribed -= len(before) - len(after)
	if len(after) == 0 {
		delete(cs, name)
		return
	}
	cs[name] = after
}

// leave ends all of c's subscriptions.
func (cs channels) leave(c *conn) {
	cs.unsubscribe(c, everyConn)
	cs.unsubscribe(c, c.id.String())
	if c.subscribed > 0 {
		for name := range cs {
			cs.unsubscribe(c, name)
		}
	}
}

// Subscriptions returns how many subscriptions to a channel there are. A connection can
// have several. It has one to the channel "*" and one to the channel of its own id from
// its start, unless [Events] is off.
func (s *Server) Subscriptions(channel string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.channels[channel])
}

func (p *sized[T]) subscribe(x *exchange, m codec.Subscribe) error {
	s := x.conn.srv
	s.channels.subscribe(x.conn, string(m.Channel), s.store.now)
	x.status(nil, true)
	return nil
}

// unsubscribe succeeds if the channel exists, whether or not the connection is subscribed
// to it (H10).
func (p *sized[T]) unsubscribe(x *exchange, m codec.Unsubscribe) error {
	cs := x.conn.srv.channels
	_, exists := cs[string(m.Channel)]
	if exists {
		cs.unsubscribe(x.conn, string(m.Channel))
	}
	x.status(nil, exists)
	return nil
}

func (p *sized[T]) listChannels(x *exchange, _ codec.Channels) error {
	cs := x.conn.srv.channels
	var entries []codec.ChannelsEntry
	for _, name := range slices.Sorted(maps.Keys(cs)) {
		e := codec.ChannelsEntry{Name: []byte(name), Connections: uint64(len(cs[name]))}
		for _, sub := range cs[name] {
			e.ReadBytes += sub.read
		}
		entries = append(entries, e)
	}
	x.respond(codec.ChannelsResponse{Fragments: fragments(entries, func(codec.ChannelsEntry) int { return 25 })})
	return nil
}

func (p *sized[T]) channel(x *exchange, m codec.Channel) error {
	subs, found := x.conn.srv.channels[string(m.Name)]
	res := codec.ChannelResponse{Found: found}
	for _, sub := range subs {
		res.Subscribers = append(res.Subscribers,
			codec.Subscriber{ID: sub.conn.id, Since: sub.since, ReadBytes: sub.read})
	}
	x.respond(res)
	x.ok = found
	return nil
}
