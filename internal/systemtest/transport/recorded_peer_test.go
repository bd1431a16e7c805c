package transport_test

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
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
