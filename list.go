package throttr

import (
	"context"
	"errors"
	"iter"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/pool"
)

// List yields all records, server by server in the order of Config.Servers, and those
// of a server in its own order. Expired records that a server keeps for another 10 s can be
// among them (H1 in docs/internals/protocol.md). If records are removed at the same time, a server may
// list records that never existed (H14): ask for a record with [Client.Query] before you act
// on it.
//
// A server is asked when the iteration comes to it, over a connection of its own, so that its
// response, of any length, delays no other request. Entries are yielded as they arrive: at most
// one fragment of the response is kept, of at most Config.MaxResponse bytes. If the loop is left,
// or ctx ends, the rest of the response is read in the background: a server never gets the memory
// of an aborted one back (H20). A response ends when the server ends it: use a ctx with a deadline.
//
// One List or KeyStats per server is under way at a time, beside that of a sweep. A further one waits for
// its turn: a slow loop makes it wait, and a loop within a loop over the same servers waits until
// its ctx ends. At most Config.MaxConns others are under way, and Config.MaxQueued callers wait.
//
// If a server fails, the entries that it has sent remain, and the other servers are asked.
// The last pair that is yielded then has an empty entry and the error: a [*RequestError], or
// several, joined. Nothing is asked twice. The iteration ends when ctx ends.
func (c *client) List(ctx context.Context) iter.Seq2[inspect.Record, error] {
	return listing(ctx, c, codec.List{}, c.recordDecoder, listEntry)
}

// KeyStats yields how much each record was used, as [Client.List] yields the records.
func (c *client) KeyStats(ctx context.Context) iter.Seq2[inspect.KeyUsage, error] {
	return listing(ctx, c, codec.Stats{}, decoderOf[codec.StatsEntry], keyStatsEntry)
}

// Connections yields all connections that are open on the servers, anybody's, as
// [Client.List] yields the records. The connection that asks is among them.
func (c *client) Connections(ctx context.Context) iter.Seq2[inspect.Connection, error] {
	return listing(ctx, c, codec.Connections{}, decoderOf[codec.ConnectionInfo], connectionEntry)
}

// Channels yields all channels that have subscribers, as [Client.List] yields the records. A server
// subscribes each connection to "*" and to the channel of its own id; those of this package
// unsubscribe, except for the one that subscriptions use.
func (c *client) Channels(ctx context.Context) iter.Seq2[inspect.Channel, error] {
	return listing(ctx, c, codec.Channels{}, decoderOf[codec.ChannelsEntry], channelEntry)
}

// listDecoder decodes a response of entries E, as a [codec.FragmentDecoder] does.
type listDecoder[E any] interface {
	Decode(src []byte) (entries []E, n int, err error)
	Done() bool
}

// decoderOf returns a decoder of entries that do not depend on the value size.
func decoderOf[E codec.FragmentEntry[E]]() listDecoder[E] { return new(codec.FragmentDecoder[E]) }

// recordDecoder returns a decoder of a LIST.
func (c *client) recordDecoder() listDecoder[conn.Record] { return c.calls.Size().Records() }

// listing yields the entries of all servers' responses to a request, and the errors last.
func listing[E, R any](
	ctx context.Context, c *client, r codec.Request, decoder func() listDecoder[E], entry func(server string, e E) R,
) iter.Seq2[R, error] {
	return ofServers(ctx, c, func(s *server, yield func(R) bool) error {
		return readEntries(ctx, s, r, decoder, func(e E) bool { return yield(entry(s.name, e)) })
	})
}

// ofServers yields what list does of each server, and the errors last. List returns when yield returns false.
func ofServers[R any](ctx context.Context, c *client, list func(s *server, yield func(R) bool) error) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var failures []error
		for _, s := range c.servers.all {
			left := false
			err := list(s, func(r R) bool {
				left = !yield(r, nil)
				return !left
			})
			if left {
				return
			}
			if err != nil {
				failures = append(failures, err)
				if ctx.Err() != nil {
					break
				}
			}
		}
		if len(failures) > 0 {
			var none R
			yield(none, joined(failures))
		}
	}
}

// readEntries calls take with the entries of a server's response to a request, until it returns false.
func readEntries[E any](
	ctx context.Context, s *server, r codec.Request, decoder func() listDecoder[E], take func(e E) (more bool),
) error {
	var d listDecoder[E]
	var entries []E
	decode := func(src []byte) (n int, done bool, err error) {
		if d == nil { // now the value size is known
			d = decoder()
		}
		entries, n, err = d.Decode(src)
		return n, d.Done(), err
	}
	return s.stream(ctx, r, decode, func() (more bool) {
		for _, e := range entries {
			if !take(e) {
				return false
			}
		}
		return true
	})
}

// joined joins the errors of some servers. It returns a single one as it is.
func joined(failures []error) error {
	if len(failures) == 1 {
		return failures[0]
	}
	return errors.Join(failures...)
}

// stream sends a request on a connection of its own, as [pool.Pool.Stream] does.
func (s *server) stream(ctx context.Context, r codec.Request, decode pool.Decoder, take func() (more bool)) error {
	if sent, err := s.pool.Stream(ctx, r, decode, take); err != nil {
		return &RequestError{Server: s.name, Op: r.Op(), Sent: sent, Err: err}
	}
	return nil
}
