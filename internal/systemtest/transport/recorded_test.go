package transport_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// The methods send the bytes that a real server was sent, and return what it responded, in
// whatever pieces its bytes arrive.
func TestRecordedConversations(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, piece := range map[string]func() int{
		"whole":         func() int { return 1 << 20 },
		"byte by byte":  func() int { return 1 },
		"random pieces": func() int { return 1 + rnd.IntN(30) },
	} {
		t.Run(name+"/uint8", func(t *testing.T) { testRecorded[uint8](t, piece) })
		t.Run(name+"/uint16", func(t *testing.T) { testRecorded[uint16](t, piece) })
		t.Run(name+"/uint32", func(t *testing.T) { testRecorded[uint32](t, piece) })
		t.Run(name+"/uint64", func(t *testing.T) { testRecorded[uint64](t, piece) })
	}
}

type scenario struct {
	Name  string
	Steps []struct {
		Conn       int
		Send, Recv string
	}
}

// testRecorded replays the recordings of a server of T. The responses come in pieces of the
// sizes that piece returns.
func testRecorded[T codec.Value](t *testing.T, piece func() int) {
	raw, err := os.ReadFile(fmt.Sprintf("../../../mockserver/testdata/throttr-uint%d.json", 8*codec.Size[T]()))
	require.NoError(t, err)
	var rec struct{ Scenarios []scenario }
	require.NoError(t, json.Unmarshal(raw, &rec))
	require.Len(t, rec.Scenarios, 20)
	seen := replayed{}
	for _, sc := range rec.Scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replay[T](t, sc, seen, piece) })
		})
	}
	for _, kind := range []any{
		codec.OpInsert, codec.OpQuery, codec.OpUpdate, codec.OpPurge, codec.OpSet, codec.OpGet,
		codec.OpList, codec.OpInfo, codec.OpStat, codec.OpStats, codec.OpSubscribe, codec.OpUnsubscribe, codec.OpPublish,
		codec.OpConnections, codec.OpConnection, codec.OpChannels, codec.OpChannel, codec.OpWhoAmI, codec.OpEvent,
		throttr.ErrTTL, throttr.ErrUpdate,
	} {
		require.NotZero(t, seen[kind], kind)
	}
}

// replayed counts requests and EVENTs by their op, and requests that the client rejects by the
// error.
type replayed map[any]int

// replay replays a scenario. Each of its connections becomes a client, because a client has
// its subscriptions and its requests on different connections.
func replay[T codec.Value](t *testing.T, sc scenario, seen replayed, piece func() int) {
	peers := map[int]*peer[T]{}
	pending := map[int]string{} // requests that are not complete
	for _, step := range sc.Steps {
		p := peers[step.Conn]
		if p == nil {
			p = newPeer[T](t, seen, piece)
			peers[step.Conn] = p
		}
		switch pending[step.Conn] += step.Send; {
		case pending[step.Conn] == "":
			p.deliver(parseHex(t, 0, step.Recv))
		case step.Recv != "":
			send := parseHex(t, 0, strings.ReplaceAll(pending[step.Conn], "{whoami}", strings.Repeat("?", 32)))
			pending[step.Conn] = ""
			p.step(send, parseHex(t, codec.Op(send[0]), step.Recv))
		}
	}
	for n, rest := range pending {
		require.Empty(t, rest, "connection %d: not replayed", n)
	}
}

// parseHex parses hex digits of a response to op. The recordings have "??" for bytes that vary
// from run to run. They become 0x11, except for those that the frame depends on: in the
// response to CHANNELS, the lengths of the names "*", an id, and "c1"; in the entry of a
// connection, the address.
func parseHex(t *testing.T, op codec.Op, digits string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(digits, "?", "1"))
	require.NoError(t, err)
	const head = 1 + 3*8 // of a response in fragments
	address := []byte("\x00\x00\x04127.0.0.1\x00\x00\x00\x00\x00\x00\x00")
	switch {
	case op == codec.OpChannels:
		for i, n := range []byte{1, 32, 2} {
			b[head+i*(1+3*8)] = n
		}
	case op == codec.OpConnections:
		copy(b[head+16:], address)
	case op == codec.OpConnection && len(b) > 1:
		copy(b[1+16:], address)
	}
	return b
}

// peer is a client of a fake server that expects given requests.
type peer[T codec.Value] struct {
	t      *testing.T
	seen   replayed
	piece  func() int
	client *throttr.Client[T]
	turns  chan turn // requests that the server expects next
	events net.Conn  // the server's end of the connection for subscriptions
	subs   map[string]*throttr.Subscription
}

// turn is a request, or several in one write, and the response.
type turn struct{ send, recv []byte }

func newPeer[T codec.Value](t *testing.T, seen replayed, piece func() int) *peer[T] {
	p := &peer[T]{t: t, seen: seen, piece: piece, turns: make(chan turn, 2), subs: map[string]*throttr.Subscription{}}
	p.client = (&testkit.Fake[T]{Play: p.play}).Client(t, testkit.WithoutRetries(throttr.Config{}))
	// A client asks for the id of its connection for subscriptions.
	p.expect(testkit.Encode(t, codec.WhoAmI{}), testkit.Encode(t, codec.WhoAmIResponse{ID: codec.ConnID{0x22}}))
	p.subscribe(throttr.AllChannel)
	return p
}

// play responds to a request, which must be that of the next turn.
func (p *peer[T]) play(op codec.Op, nc net.Conn) bool {
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

// subscribe makes a subscription that ends with the client, so that no UNSUBSCRIBE is sent.
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
		require.Equal(p.t, throttr.Message{Server: throttr.DefaultServer, Channel: string(e.Channel), Payload: e.Payload},
			testkit.Next(p.t, p.subs[string(e.Channel)]))
	}
	for name, sub := range p.subs {
		require.Empty(p.t, testkit.Payloads(p.t, sub), name)
	}
}

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
