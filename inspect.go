package throttr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/pubsub"
)

// Stat returns how much a record was used. It returns false if there is none.
func (c *client) Stat(ctx context.Context, key string) (inspect.Usage, bool, error) {
	call := c.newCall(key)
	response, err := ask(ctx, c, key, call, codec.Stat{Key: call.Key})
	if err != nil {
		return inspect.Usage{}, false, err
	}
	r, _, err := codec.DecodeStatResponse(response.Value)
	return inspect.Usage(r.Usage), r.Found, err
}

// Publish sends payload to all subscribers of a channel. It returns false if there are none.
// The length of payload is at most the largest T, and the frame at most 8096 bytes; an error
// matches [codec.ErrTooLarge].
//
// The message goes to one server. If there are several, it is the one that a key of the
// channel's name would live on, which is also where [Client.Subscribe] subscribes. This
// matters for two kinds of channels:
//   - "*" is on all servers, and only the connections to that one server receive the message.
//     A client that is subscribed to [pubsub.All] has a connection to each server and receives
//     the message once.
//   - The channel of a connection exists only on the server of that connection. If Publish sends
//     the message to another server, the result is false. Use a client of that server alone.
func (c *Client[T]) Publish(ctx context.Context, channel string, payload []byte) (bool, error) {
	call := c.newCall(channel)
	response, err := ask(ctx, c.client, channel, call, codec.Publish[T]{Channel: call.Key, Payload: payload})
	return response.OK, err
}

// Info returns what the servers report about themselves, in the order of Config.Servers. If
// some servers do not respond, Info returns the others' reports and the errors, joined.
func (c *client) Info(ctx context.Context) ([]inspect.Info, error) {
	return report(ctx, c, codec.Info{}, codec.DecodeInfoResponse, serverInfo)
}

// WhoAmI returns the id of one connection to each server, in the order of Config.Servers. It
// is one of the connections that requests share, and may be another one each time. If some
// servers do not respond, WhoAmI returns the others' ids and the errors, joined.
func (c *client) WhoAmI(ctx context.Context) ([]inspect.Identity, error) {
	return report(ctx, c, codec.WhoAmI{}, codec.DecodeWhoAmIResponse,
		func(server string, r codec.WhoAmIResponse) inspect.Identity {
			return inspect.Identity{Server: server, ID: r.ID}
		})
}

// report sends a request to every server, and returns an entry for each response.
func report[R codec.Request, M, E any](
	ctx context.Context, c *client, r R, decode func([]byte) (M, int, error), entry func(server string, m M) E,
) ([]E, error) {
	return each(c.servers.all, func(s *server) ([]E, error) {
		response, err := askServer(ctx, c, s, "", c.newCall(""), r)
		if err != nil {
			return nil, err
		}
		m, _, err := decode(response.Value)
		return []E{entry(s.name, m)}, err
	})
}

// Connection returns a connection that is open on a server, which must be an element of
// Config.Servers; any other is an error that matches [ErrConfig]. It returns false if no open
// connection has the id.
func (c *client) Connection(ctx context.Context, server string, id codec.ConnID) (inspect.Connection, bool, error) {
	i := slices.Index(c.cfg.Servers, server)
	if i < 0 {
		return inspect.Connection{}, false, fmt.Errorf("%w: %q is none of Servers", ErrConfig, server)
	}
	response, err := askServer(ctx, c, c.servers.all[i], "", c.newCall(""), codec.Connection{ID: id})
	if err != nil {
		return inspect.Connection{}, false, err
	}
	r, _, err := codec.DecodeConnectionResponse(response.Value)
	if err != nil || !r.Found {
		return inspect.Connection{}, false, err
	}
	return connectionEntry(server, r.Connection), true, nil
}

// Channel returns the subscribers of a channel: an entry for each subscription. It returns
// false if there are none.
//
// Channel asks the server that the channel is on, see [Client.Publish]. Two kinds of names
// are asked for on all servers: "*", which is on all of them, and 32 lowercase hexadecimal
// digits, which may be the id of a connection to any of them. The entries then come in the
// order of Config.Servers. If some servers do not respond, Channel returns the others'
// entries and the errors, joined.
//
// The response can be long, so it uses a connection of its own, see [Client.List].
func (c *client) Channel(ctx context.Context, name string) ([]inspect.Subscriber, bool, error) {
	request := codec.Channel{Name: []byte(name)}
	if _, err := request.AppendBinary(nil); err != nil {
		return nil, false, err
	}
	asked := c.servers.all
	if !onAnyServer(name) {
		asked = []*server{c.servers.of(name)}
	}
	subscribers, err := each(asked, func(s *server) (subscribers []inspect.Subscriber, err error) {
		var r codec.ChannelResponse
		decode := func(src []byte) (n int, done bool, err error) {
			r, n, err = codec.DecodeChannelResponse(src)
			return n, err == nil, err
		}
		err = s.stream(ctx, request, decode, func() (more bool) {
			for _, entry := range r.Subscribers {
				subscribers = append(subscribers, subscriber(s.name, entry))
			}
			return true
		})
		return subscribers, err
	})
	return subscribers, len(subscribers) > 0, err
}

// onAnyServer reports whether a channel of that name can be on any server.
func onAnyServer(name string) bool {
	isID := len(name) == 2*len(codec.ConnID{}) && strings.Trim(name, "0123456789abcdef") == ""
	return isID || name == pubsub.All
}

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

func listEntry(server string, e conn.Record) inspect.Record {
	kind := inspect.Counter
	if e.Buffer {
		kind = inspect.Buffer
	}
	return inspect.Record{
		Server: server, Key: string(e.Key), Kind: kind,
		Unit: e.Unit, ExpiresAt: unixTime(e.Expires), BytesUsed: e.Bytes,
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
		var addr netip.Addr
		if len(e.IP) < 16 { // one that fills its field may have been truncated, and look like another address
			addr, _ = netip.ParseAddr(e.IP)
		}
		entry.Addr = netip.AddrPortFrom(addr, e.Port)
	}
	return entry
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
