package throttr

import (
	"context"
	"errors"
	"iter"

	"github.com/throttr-go/throttr/codec"
)

// List yields all records, server by server in the order of Config.Servers, and those
// of a server in its own order. What a server keeps of an expired record for 10 s (H1 in
// docs/protocol.md) can be among them.
//
// A server is asked when the iteration comes to it, over a connection of its own, so that
// its answer, of any length, holds up no other request; that connection is closed when the
// answer is over, or the loop is left. The entries come as they arrive: what is kept of the
// answer is a fragment, of at most Config.MaxAnswer bytes. A loop that takes its time makes
// the server wait. An answer has no end but the server's: let ctx have one.
//
// At most Config.MaxConns of these connections per server are open at a time, and a
// further one waits for its turn: a loop within a loop needs two. No more than
// Config.MaxWaiting can wait.
//
// Where a server fails, the entries that came from it remain, and the others are asked.
// The last that is yielded is then the error, with an empty entry: a [*RequestError], or
// several, joined. Nothing is asked twice. Where ctx ends, the iteration does.
func (c *Client[T]) List(ctx context.Context) iter.Seq2[ListEntry, error] {
	return listing(ctx, c, codec.List{}, listEntry[T])
}

// KeyStats yields how much each record was used, as [Client.List] yields the records.
func (c *Client[T]) KeyStats(ctx context.Context) iter.Seq2[KeyStatsEntry, error] {
	return listing(ctx, c, codec.Stats{}, keyStatsEntry)
}

// Connections yields all connections that are open on the servers, anybody's, as
// [Client.List] yields the records. The one that asks is among them.
func (c *Client[T]) Connections(ctx context.Context) iter.Seq2[ConnectionEntry, error] {
	return listing(ctx, c, codec.Connections{}, connectionEntry)
}

// Channels yields all channels that somebody is subscribed to, as [Client.List] yields
// the records: each connection is, to "*" and to its own id.
func (c *Client[T]) Channels(ctx context.Context) iter.Seq2[ChannelEntry, error] {
	return listing(ctx, c, codec.Channels{}, channelEntry)
}

// listing yields the entries of all servers' answers to a request, and at last what
// went wrong.
func listing[T codec.Value, E codec.FragmentEntry[E], A any](
	ctx context.Context, c *Client[T], r codec.Request, entry func(server string, e E) A,
) iter.Seq2[A, error] {
	return func(yield func(A, error) bool) {
		var failures []error
		for _, p := range c.pools {
			goesOn := true
			d := codec.FragmentDecoder[E]{MaxFragment: uint64(c.cfg.MaxAnswer)}
			err := p.converse(ctx, r, func(src []byte) (int, bool, error) {
				entries, n, err := d.Decode(src)
				for _, e := range entries {
					if goesOn = yield(entry(p.server, e), nil); !goesOn {
						return n, true, nil
					}
				}
				return n, d.Done(), err
			})
			if !goesOn {
				return
			}
			if err != nil {
				failures = append(failures, err)
			}
			if ctx.Err() != nil && err != nil {
				break
			}
		}
		var none A
		switch len(failures) {
		case 0:
		case 1:
			yield(none, failures[0])
		default:
			yield(none, errors.Join(failures...))
		}
	}
}
