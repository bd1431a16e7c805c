package throttr

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/throttr-go/throttr/codec"
)

// Stat returns how much a record was used. It returns false where there is none.
func (c *Client[T]) Stat(ctx context.Context, key string) (KeyStats, bool, error) {
	cl := c.newCall(key)
	a, err := c.do(ctx, key, cl, codec.OpStat, add(cl, codec.Stat{Key: cl.scratch}))
	if err != nil {
		return KeyStats{}, false, err
	}
	r, _, err := codec.DecodeStatResponse(a.value)
	return KeyStats(r.Usage), r.Found, err
}

// Publish sends payload to all who are subscribed to a channel. It returns false where
// there is nobody. The length of payload is at most the largest T, and the frame 8096
// bytes; an error matches [codec.ErrTooLarge].
//
// It goes to one server: of several, the one that a key of the channel's name would live
// on, where [Client.Subscribe] looks for it, too. For two kinds of channels that matters:
//   - "*" is on all servers, and only the connections to that one are reached. A client
//     that is subscribed to [AllChannel] has one to each, and gets the message once.
//   - A connection's id is known only to the server that gave it, which may be another
//     one; then the result is false. Publish with a client of that server alone.
func (c *Client[T]) Publish(ctx context.Context, channel string, payload []byte) (bool, error) {
	cl := c.newCall(channel)
	a, err := c.do(ctx, channel, cl, codec.OpPublish, add(cl, codec.Publish[T]{Channel: cl.scratch, Payload: payload}))
	return a.ok, err
}

// Info returns what the servers tell of themselves, in the order of Config.Servers.
// Where some of them do not answer, the others are returned, and the errors, joined.
func (c *Client[T]) Info(ctx context.Context) ([]ServerInfo, error) {
	return each(c.pools, func(p *pool[T]) ([]ServerInfo, error) {
		cl := c.newCall("")
		a, err := c.ask(ctx, p, cl, codec.OpInfo, add(cl, codec.Info{}))
		if err != nil {
			return nil, err
		}
		r, _, err := codec.DecodeInfoResponse(a.value)
		return []ServerInfo{serverInfo(p.server, r)}, err
	})
}

// WhoAmI returns the id of a connection to each server, in the order of Config.Servers:
// one of those that requests share, and each time it can be another. Where some servers
// do not answer, the others are returned, and the errors, joined.
func (c *Client[T]) WhoAmI(ctx context.Context) ([]Identity, error) {
	return each(c.pools, func(p *pool[T]) ([]Identity, error) {
		cl := c.newCall("")
		a, err := c.ask(ctx, p, cl, codec.OpWhoAmI, add(cl, codec.WhoAmI{}))
		if err != nil {
			return nil, err
		}
		r, _, err := codec.DecodeWhoAmIResponse(a.value)
		return []Identity{{Server: p.server, ID: r.ID}}, err
	})
}

// Connection returns a connection that is open on a server, an element of
// Config.Servers; any other is an error that matches [ErrConfig]. It returns false where
// no open connection has the id.
func (c *Client[T]) Connection(ctx context.Context, server string, id codec.ConnID) (ConnectionEntry, bool, error) {
	i := slices.IndexFunc(c.pools, func(p *pool[T]) bool { return p.server == server })
	if i < 0 {
		return ConnectionEntry{}, false, fmt.Errorf("%w: %q is none of Servers", ErrConfig, server)
	}
	cl := c.newCall("")
	a, err := c.ask(ctx, c.pools[i], cl, codec.OpConnection, add(cl, codec.Connection{ID: id}))
	if err != nil {
		return ConnectionEntry{}, false, err
	}
	r, _, err := codec.DecodeConnectionResponse(a.value)
	if err != nil || !r.Found {
		return ConnectionEntry{}, false, err
	}
	return connectionEntry(server, r.Connection), true, nil
}

// Channel returns who is subscribed to a channel: an entry for each subscription. It
// returns false where nobody is.
//
// It asks the server that the channel is on, see [Client.Publish]. Only "*" is on all of
// them, and what may be a connection's id, 32 lowercase hexadecimal digits, on any: for
// these it asks all, and returns the answers in the order of Config.Servers. Where some
// of them do not answer, the others' are returned, and the errors, joined.
//
// The answer can be long, so it comes on a connection of its own, see [Client.List].
func (c *Client[T]) Channel(ctx context.Context, name string) ([]Subscriber, bool, error) {
	pools := c.pools
	if !onAnyServer(name) {
		i := c.router.pick(name)
		pools = pools[i : i+1]
	}
	subscribers, err := each(pools, func(p *pool[T]) (subscribers []Subscriber, err error) {
		err = p.converse(ctx, codec.Channel{Name: []byte(name)}, func(src []byte) (int, bool, error) {
			r, n, err := codec.DecodeChannelResponse(src)
			for _, s := range r.Subscribers {
				subscribers = append(subscribers, Subscriber{
					Server: p.server, ID: s.ID, Since: instant(s.Since), ReadBytes: s.ReadBytes, WriteBytes: s.WriteBytes,
				})
			}
			return n, err == nil, err
		})
		return subscribers, err
	})
	return subscribers, len(subscribers) > 0, err
}

// onAnyServer reports whether a channel's name does not tell its server.
func onAnyServer(name string) bool {
	if name == "*" {
		return true
	}
	var id codec.ConnID
	n, err := hex.Decode(id[:], []byte(name[:min(len(name), 2*len(id))]))
	return err == nil && n == len(id) && id.String() == name
}

// each asks servers all at once, and returns their answers in order, and their errors,
// joined.
func each[T codec.Value, A any](pools []*pool[T], ask func(*pool[T]) ([]A, error)) ([]A, error) {
	if len(pools) == 1 {
		return ask(pools[0])
	}
	answers, errs := make([][]A, len(pools)), make([]error, len(pools))
	var asked sync.WaitGroup
	for i, p := range pools {
		asked.Go(func() { answers[i], errs[i] = ask(p) })
	}
	asked.Wait()
	return slices.Concat(answers...), errors.Join(errs...)
}
