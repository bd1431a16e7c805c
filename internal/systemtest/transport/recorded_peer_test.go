package transport_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/pubsub"
)

// peer is a client of a fake server that expects given requests.
type peer[T codec.Value] struct {
	t      *testing.T
	seen   replayed
	piece  func() int
	client *throttr.Client[T]
	turns  chan turn // requests that the server expects next
	events net.Conn  // the server's end of the connection for subscriptions
	subs   map[string]*pubsub.Subscription
	ending atomic.Bool // the client is being closed
}

// turn is a request, or several in one write, and the response.
type turn struct{ send, recv []byte }

func newPeer[T codec.Value](t *testing.T, seen replayed, piece func() int) *peer[T] {
	p := &peer[T]{t: t, seen: seen, piece: piece, turns: make(chan turn, 2), subs: map[string]*pubsub.Subscription{}}
	p.client = (&testkit.Fake[T]{Play: p.play}).Client(t, testkit.WithoutRetries(throttr.Config{}))
	// A client asks for the id of its connection for subscriptions.
	p.expect(testkit.Encode(t, codec.WhoAmI{}), testkit.Encode(t, codec.WhoAmIResponse{ID: codec.ConnID{0x22}}))
	p.subscribe(pubsub.All)
	t.Cleanup(func() { p.ending.Store(true) })
	return p
}

// play responds to a request, which must be that of the next turn.
func (p *peer[T]) play(op codec.Op, nc net.Conn) bool {
	if op == codec.OpUnsubscribe && p.ending.Load() {
		n := make([]byte, 1)
		io.ReadFull(nc, n)
		io.ReadFull(nc, make([]byte, n[0]))
		return p.write(nc, []byte{1}) == nil
	}
	var next turn
	select {
	case next = <-p.turns:
	default:
		p.t.Errorf("%v: not expected", op)
		return false
	}
	if p.events == nil {
		p.events = nc
	}
	got := make([]byte, len(next.send))
	got[0] = byte(op)
	if _, err := io.ReadFull(nc, got[1:]); err != nil || !bytes.Equal(next.send, got) {
		p.t.Errorf("the client sent %x, not %x: %v", got, next.send, err)
	}
	return p.write(nc, next.recv) == nil
}

// write sends b in pieces.
func (p *peer[T]) write(nc net.Conn, b []byte) (err error) {
	for len(b) > 0 && err == nil {
		n := min(len(b), p.piece())
		_, err = nc.Write(b[:n])
		b = b[n:]
	}
	return err
}

// expect adds a turn.
func (p *peer[T]) expect(send, recv []byte) { p.turns <- turn{send, recv} }

// step makes the requests that are encoded in send and compares their results with recv. If
// there are several that a batch can hold, it also makes them as a batch.
func (p *peer[T]) step(send, recv []byte) {
	var requests []codec.Request
	batchable := true
	for rest := send; len(rest) > 0; {
		r, n, err := codec.DecodeRequest[T](rest)
		require.NoError(p.t, err)
		rest = rest[n:]
		requests = append(requests, r)
		batchable = batchable && canBatch[T](r)
	}
	if batchable && len(requests) > 1 {
		p.batch(requests, send, recv)
	}
	for _, r := range requests {
		p.seen[r.Op()]++
		events := 0 // bytes of EVENTs before the response
		for codec.Op(recv[events]) == codec.OpEvent {
			_, n, err := codec.DecodeEvent[T](recv[events:])
			require.NoError(p.t, err)
			events += n
		}
		_, n, err := codec.DecodeResponse[T](r.ResponseKind(), recv[events:])
		require.NoError(p.t, err)
		p.request(r, recv[:events+n], recv[events:events+n])
		p.deliver(recv[:events])
		recv = recv[events+n:]
	}
	require.Empty(p.t, recv)
}

// request makes a request, to which the server responds with recv: EVENTs and the response. It
// compares the result of the method with the response.
func (p *peer[T]) request(r codec.Request, recv, response []byte) {
	ctx := p.t.Context()
	switch want := rejection[T](r); {
	case want != nil:
		_, err := invoke(ctx, p.client, r)
		require.ErrorIs(p.t, err, want)
		p.seen[want]++
		return
	case r.Op() == codec.OpSubscribe:
		p.expect(testkit.Encode(p.t, r), recv)
		p.subscribe(string(r.(codec.Subscribe).Channel))
	case r.Op() == codec.OpUnsubscribe:
		p.unsubscribe(r.(codec.Unsubscribe), recv)
	default:
		if u, ok := r.(codec.Update[T]); ok && u.Attribute == codec.TimeToLive && u.Change != codec.Patch {
			p.expect(testkit.Encode(p.t, codec.Query{Key: u.Key}),
				testkit.Encode(p.t, codec.QueryResponse[T]{Found: true, TTL: codec.TTL[T]{Amount: 100, Unit: codec.Hours}}))
		}
		p.expect(testkit.Encode(p.t, r), recv)
		got, err := invoke(ctx, p.client, r)
		require.NoError(p.t, err)
		require.Equal(p.t, response, testkit.Encode(p.t, got))
	}
	require.Empty(p.t, p.turns, "%v: not sent", r.Op())
}

// subscribe makes a subscription that ends with the client.
func (p *peer[T]) subscribe(channel string) {
	sub, err := p.client.Subscribe(p.t.Context(), channel)
	require.NoError(p.t, err)
	p.subs[channel] = sub
}

// unsubscribe closes a subscription. It makes one first if there is none.
func (p *peer[T]) unsubscribe(r codec.Unsubscribe, recv []byte) {
	name := string(r.Channel)
	if p.subs[name] == nil {
		p.expect(testkit.Encode(p.t, codec.Subscribe(r)), testkit.Encode(p.t, codec.Success))
		p.subscribe(name)
	}
	p.expect(testkit.Encode(p.t, r), recv)
	p.subs[name].Close()
	synctest.Wait()
	_, err := p.subs[name].Next(p.t.Context())
	require.ErrorIs(p.t, err, throttr.ErrClosed)
	delete(p.subs, name)
}

// deliver sends EVENTs to the client. The subscriptions must receive them, and nothing else.
func (p *peer[T]) deliver(frames []byte) {
	for len(frames) > 0 {
		e, n, err := codec.DecodeEvent[T](frames)
		require.NoError(p.t, err)
		require.NoError(p.t, p.write(p.events, frames[:n]))
		frames = frames[n:]
		p.seen[codec.OpEvent]++
		require.Contains(p.t, p.subs, string(e.Channel))
		require.Equal(p.t, pubsub.Message{Server: throttr.DefaultServer, Channel: string(e.Channel), Payload: e.Payload},
			testkit.Next(p.t, p.subs[string(e.Channel)]))
	}
	for name, sub := range p.subs {
		require.Empty(p.t, testkit.Payloads(p.t, sub), name)
	}
}

// invoke calls the method of the client that sends r, and converts its results to a response.
func invoke[T codec.Value](ctx context.Context, c *throttr.Client[T], r codec.Request) (codec.Response, error) {
	switch r := r.(type) {
	case codec.Insert[T]:
		ok, err := c.Insert(ctx, string(r.Key), r.Quota, r.TTL)
		return codec.Status(ok), err
	case codec.Query:
		a, ok, err := c.Query(ctx, string(r.Key))
		return codec.QueryResponse[T]{Found: ok, Quota: a.Quota, TTL: a.TTL}, err
	case codec.Update[T]:
		ok, err := c.Update(ctx, string(r.Key), r.Attribute, r.Change, r.Value)
		return codec.Status(ok), err
	case codec.Purge:
		ok, err := c.Purge(ctx, string(r.Key))
		return codec.Status(ok), err
	case codec.Set[T]:
		ok, err := c.Set(ctx, string(r.Key), r.Value, r.TTL)
		return codec.Status(ok), err
	case codec.Get:
		a, ok, err := c.Get(ctx, string(r.Key))
		return codec.GetResponse[T]{Found: ok, TTL: a.TTL, Value: a.Value}, err
	case codec.Stat:
		a, ok, err := c.Stat(ctx, string(r.Key))
		return codec.StatResponse{Found: ok, Usage: codec.Usage(a)}, err
	case codec.Publish[T]:
		ok, err := c.Publish(ctx, string(r.Channel), r.Payload)
		return codec.Status(ok), err
	}
	return list(ctx, c, r)
}

// list is invoke for requests about a server as a whole. It makes one fragment of all entries.
func list[T codec.Value](ctx context.Context, c *throttr.Client[T], r codec.Request) (codec.Response, error) {
	var err error
	switch r := r.(type) {
	case codec.List:
		var all []codec.ListEntry[T]
		for e, failed := range c.List(ctx) {
			all, err = append(all, codec.ListEntry[T]{
				Key: []byte(e.Key), Buffer: e.Kind == inspect.Buffer, Unit: e.Unit,
				Expires: nanoseconds(e.ExpiresAt), Bytes: T(e.BytesUsed),
			}), failed
		}
		return codec.ListResponse[T]{Fragments: fragments(all)}, err
	case codec.Stats:
		var all []codec.StatsEntry
		for e, failed := range c.KeyStats(ctx) {
			all, err = append(all, codec.StatsEntry{Key: []byte(e.Key), Usage: codec.Usage(e.Usage)}), failed
		}
		return codec.StatsResponse{Fragments: fragments(all)}, err
	case codec.Connections:
		var all []codec.ConnectionInfo
		for e, failed := range c.Connections(ctx) {
			all, err = append(all, connectionInfo(e)), failed
		}
		return codec.ConnectionsResponse{Fragments: fragments(all)}, err
	case codec.Channels:
		var all []codec.ChannelsEntry
		for e, failed := range c.Channels(ctx) {
			all, err = append(all, codec.ChannelsEntry{
				Name: []byte(e.Name), ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes, Connections: e.Connections,
			}), failed
		}
		return codec.ChannelsResponse{Fragments: fragments(all)}, err
	case codec.Connection:
		e, ok, err := c.Connection(ctx, throttr.DefaultServer, r.ID)
		return codec.ConnectionResponse{Found: ok, Connection: connectionInfo(e)}, err
	case codec.Channel:
		all, ok, err := c.Channel(ctx, string(r.Name))
		response := codec.ChannelResponse{Found: ok}
		for _, s := range all {
			response.Subscribers = append(response.Subscribers, codec.Subscriber{
				ID: s.ID, Since: nanoseconds(s.Since), ReadBytes: s.ReadBytes, WriteBytes: s.WriteBytes,
			})
		}
		return response, err
	case codec.Info:
		all, err := c.Info(ctx)
		if err != nil {
			return nil, err
		}
		return infoResponse(all[0]), nil
	case codec.WhoAmI:
		all, err := c.WhoAmI(ctx)
		if err != nil {
			return nil, err
		}
		return codec.WhoAmIResponse{ID: all[0].ID}, nil
	}
	return nil, fmt.Errorf("no method sends %v alone", r.Op())
}

// fragments returns one fragment with all entries, none if there are no entries.
func fragments[E any](entries []E) [][]E {
	if len(entries) == 0 {
		return nil
	}
	return [][]E{entries}
}

func connectionInfo(e inspect.Connection) codec.ConnectionInfo {
	return codec.ConnectionInfo{
		ID: e.ID, Type: e.Type, Transport: e.Kind, IPVersion: 4, IP: e.Addr.Addr().String(), Port: e.Addr.Port(),
		Connected: nanoseconds(e.ConnectedAt), ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes,
		PublishedBytes: e.PublishedBytes, ReceivedBytes: e.ReceivedBytes,
		AllocatedBytes: e.AllocatedBytes, ConsumedBytes: e.ConsumedBytes, Requests: e.Requests,
	}
}

func infoResponse(i inspect.Info) codec.InfoResponse {
	return codec.InfoResponse{
		Timestamp: uint64(i.Time.Unix()), Requests: i.Requests, ReadBytes: i.ReadBytes, WriteBytes: i.WriteBytes,
		Keys: i.Keys, Counters: i.Counters, Buffers: i.Buffers, CounterBytes: i.CounterBytes, BufferBytes: i.BufferBytes,
		Subscriptions: i.Subscriptions, Channels: i.Channels, RunningSince: nanoseconds(i.RunningSince),
		Connections: i.Connections, Version: i.Version,
	}
}

func nanoseconds(t time.Time) uint64 { return uint64(t.UnixNano()) }

// batch makes several requests as a batch.
func (p *peer[T]) batch(requests []codec.Request, send, recv []byte) {
	var b throttr.Batch[T]
	var replies []func() (codec.Response, error)
	for _, r := range requests {
		replies = append(replies, add(&b, r))
	}
	p.expect(send, recv)
	require.NoError(p.t, p.client.Do(p.t.Context(), &b))
	var got []byte
	for _, reply := range replies {
		r, err := reply()
		require.NoError(p.t, err)
		got = append(got, testkit.Encode(p.t, r)...)
	}
	require.Equal(p.t, recv, got)
}

// rejection returns the error with which the client rejects r, or nil. A server would accept r
// and lose the record or do nothing.
func rejection[T codec.Value](r codec.Request) error {
	var ttl codec.TTL[T]
	switch r := r.(type) {
	case codec.Insert[T]:
		ttl = r.TTL
	case codec.Set[T]:
		ttl = r.TTL
	case codec.Update[T]:
		if r.Attribute > codec.TimeToLive || r.Change > codec.Decrease {
			return throttr.ErrUpdate
		}
		return nil
	default:
		return nil
	}
	if ttl.Amount == 0 || !ttl.Unit.Known() {
		return throttr.ErrTTL
	}
	return nil
}

// canBatch reports whether a batch can hold r.
func canBatch[T codec.Value](r codec.Request) bool {
	u, ok := r.(codec.Update[T])
	return r.Op() <= codec.OpGet && rejection[T](r) == nil && (!ok || u.Attribute == codec.Quota || u.Change == codec.Patch)
}

// add adds r to a batch and returns a function that returns the response.
func add[T codec.Value](b *throttr.Batch[T], r codec.Request) func() (codec.Response, error) {
	status := func(r throttr.Reply[T]) func() (codec.Response, error) {
		return func() (codec.Response, error) {
			ok, err := r.OK()
			return codec.Status(ok), err
		}
	}
	switch r := r.(type) {
	case codec.Insert[T]:
		return status(b.Insert(string(r.Key), r.Quota, r.TTL))
	case codec.Update[T]:
		return status(b.Update(string(r.Key), r.Attribute, r.Change, r.Value))
	case codec.Purge:
		return status(b.Purge(string(r.Key)))
	case codec.Set[T]:
		return status(b.Set(string(r.Key), r.Value, r.TTL))
	case codec.Query:
		reply := b.Query(string(r.Key))
		return func() (codec.Response, error) {
			c, ok, err := reply.Counter()
			return codec.QueryResponse[T]{Found: ok, Quota: c.Quota, TTL: c.TTL}, err
		}
	case codec.Get:
		reply := b.Get(string(r.Key))
		return func() (codec.Response, error) {
			v, ok, err := reply.Buffer()
			return codec.GetResponse[T]{Found: ok, TTL: v.TTL, Value: v.Value}, err
		}
	}
	panic(fmt.Sprintf("no batch holds %v", r.Op()))
}
