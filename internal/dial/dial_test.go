package dial_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

var somewhere = dial.Address{Network: "tcp", Address: "host:1"}

// success holds the responses of a server of uint16 to a probe, to a QUERY of the empty key, to an
// UNSUBSCRIBE and to a WHOAMI.
var success = responses(1, 0, 1, 0, 0)

// responses returns the responses to a probe and to what follows it.
func responses(statuses ...byte) []byte {
	id := codec.ConnID{1, 2, 3}
	return append(append(statuses, 0, 1, 1), id[:]...)
}

// behindProbe are the requests in the write of a probe: QUERY "", UNSUBSCRIBE "*", WHOAMI. A neighbor that publishes to
// "*" would push out the responses of a connection that stays subscribed (H21).
const behindProbe = "\x02\x00\x12\x01*\x18"

// peer is the server's end of connections. It reads a probe, writes the given pieces, and keeps what it reads after
// that.
type peer struct {
	pieces [][]byte
	hangUp bool   // after the last piece
	behind string // the requests behind the probe

	mu    sync.Mutex
	read  []byte // after the probe
	conns sync.WaitGroup
}

// target returns a server, for a client of values of so many bytes; 0: it does not know.
func target(d *dial.Dialer, server string, a dial.Address, size int) *dial.Target {
	calls := conn.NewCalls(nil)
	if size > 0 {
		calls = conn.NewCalls(conn.SizeOf(size))
	}
	return &dial.Target{
		Server: server, Address: a, Dialer: d, Calls: calls, Events: new(atomic.Uint64), Go: func(f func()) { go f() },
	}
}

// connect is Connect for a client of values of two bytes, which is to fail.
func connect(ctx context.Context, d *dial.Dialer, server string) error {
	_, err := dial.Connect(ctx, target(d, server, somewhere, 2), false)
	return err
}

// dialer returns a Dialer that connects to the peer.
func (p *peer) dialer() *dial.Dialer {
	return dialer(func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		p.conns.Go(func() { p.serve(theirs) })
		return ours, nil
	})
}

func (p *peer) serve(nc net.Conn) {
	defer nc.Close()
	probe, err := codec.AppendProbe(make([]byte, 0, 1024), make([]byte, 16))
	if err != nil {
		panic(err)
	}
	probe = probe[:len(probe)+len(behindProbe)]
	if _, err := io.ReadFull(nc, probe); err != nil {
		return
	}
	p.behind = string(probe[len(probe)-len(behindProbe):])
	p.conns.Go(func() {
		for _, piece := range p.pieces {
			if _, err := nc.Write(piece); err != nil {
				break
			}
		}
		if p.hangUp {
			nc.Close()
		}
	})
	rest, _ := io.ReadAll(nc)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = append(p.read, rest...)
}

func dialer(d func(context.Context, string, string) (net.Conn, error)) *dial.Dialer {
	return &dial.Dialer{Dial: d, Timeout: 5 * time.Second}
}

// split cuts b into pieces of n bytes.
func split(b []byte, n int) [][]byte { return slices.Collect(slices.Chunk(b, n)) }

// event encodes an EVENT with a payload of n bytes.
func event(n int) []byte { return eventOf[uint16]("*", n) }

func eventOf[T codec.Value](channel string, n int) []byte {
	b, err := codec.Event[T]{Channel: []byte(channel), Payload: bytes.Repeat([]byte{1}, n)}.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestProbeResponsesMayComeInAnyPieces(t *testing.T) {
	small, large := event(5), event(codec.MaxFrame-5)
	for name, c := range map[string]struct {
		bytes  []byte
		events int
		early  []byte
	}{
		"statuses":                     {bytes: success},
		"an EVENT first":               {bytes: join(small, success), events: 1},
		"large EVENTs first":           {bytes: join(large, large, large, large, success), events: 4},
		"EVENTs between the responses": {bytes: join(success[:1], small, small, success[1:2], large, success[2:4], small, success[4:]), events: 4},
		"an EVENT after":               {bytes: success, early: small},
		"many EVENTs after":            {bytes: success, early: bytes.Repeat(event(1000), 100)},
		"EVENTs everywhere":            {bytes: join(small, success[:4], small, success[4:]), events: 2, early: small},
	} {
		for _, size := range []int{1, 2, 7, 1000, 16 << 10, len(c.bytes)} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{pieces: split(join(c.bytes, c.early), size)}
				server := target(p.dialer(), "s", somewhere, 2)
				got, err := dial.Connect(t.Context(), server, false)
				require.NoError(t, err, "%s in pieces of %d", name, size)
				nc, early := got.Conn, got.Early
				require.EqualValues(t, c.events, server.Events.Load(), "%s in pieces of %d", name, size)
				// What was not read with the last status is still on its way.
				rest := make([]byte, len(c.early)-len(early))
				_, err = io.ReadFull(nc, rest)
				require.NoError(t, err)
				require.True(t, bytes.Equal(c.early, join(early, rest)), "%s in pieces of %d", name, size)
				require.LessOrEqual(t, len(early), 16<<10, "a connection's buffer holds them")
				nc.Close()
				p.conns.Wait()
				require.Empty(t, p.read)
				require.Equal(t, behindProbe, p.behind)
			})
		}
	}
}

func TestAServerOfAnotherValueSizeIsSentOnlyTheProbe(t *testing.T) {
	for actual, response := range map[int][]byte{1: responses(1, 1, 0, 0, 0), 2: success, 4: responses(1, 0, 0, 1, 0), 8: responses(1, 0, 0, 0, 1)} {
		for _, client := range []int{1, 2, 4, 8} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{pieces: [][]byte{response}}
				c, err := dial.Connect(t.Context(), target(p.dialer(), "s", somewhere, client), false)
				if client == actual {
					require.NoError(t, err)
					c.Conn.Close()
				} else {
					require.Nil(t, c)
					require.ErrorIs(t, err, dial.ErrConnect)
					require.ErrorIs(t, err, dial.ErrValueSizeMismatch)
					var mismatch *dial.ValueSizeError
					require.ErrorAs(t, err, &mismatch)
					require.Equal(t, dial.ValueSizeError{Server: "s", Client: client, Actual: actual}, *mismatch)
					require.ErrorContains(t, err, fmt.Sprintf(
						"the client has %d-byte values, and s has %d-byte values (use uint%d)",
						client, actual, 8*actual))
				}
				p.conns.Wait()
				require.Empty(t, p.read)
			})
		}
	}
}

// A server's neighbours may publish before it responds to a probe.
func TestEventsBeforeTheProbesResponsesMayBeOfAnyValueSize(t *testing.T) {
	eventsTellTheSize[uint8](t, responses(1, 1, 0, 0, 0))
	eventsTellTheSize[uint16](t, success)
	eventsTellTheSize[uint32](t, responses(1, 0, 0, 1, 0))
	eventsTellTheSize[uint64](t, responses(1, 0, 0, 0, 1))
}

func eventsTellTheSize[T codec.Value](t *testing.T, responses []byte) {
	largest := min(uint64(^T(0)), codec.MaxFrame-100)
	for _, n := range []int{0, 1, 15, int(largest &^ 0xff), int(largest)} {
		for _, channel := range []string{"*", codec.ConnID{0xa0}.String()} {
			sent := eventOf[T](channel, n)
			for _, piece := range []int{1, len(sent)} {
				synctest.Test(t, func(t *testing.T) {
					p := &peer{pieces: split(join(sent, responses[:2], sent, responses[2:]), piece)}
					server := target(p.dialer(), "s", somewhere, 0)
					c, err := dial.Connect(t.Context(), server, false)
					require.NoError(t, err, "%d bytes to %s of a server of %d", n, channel, codec.Size[T]())
					require.Equal(t, codec.Size[T](), server.Calls.Size().Bytes())
					require.EqualValues(t, 2, server.Events.Load())
					c.Conn.Close()
					p.conns.Wait()
				})
			}
		}
	}
}

// The first server tells a client its value size. A server of another one is then refused.
func TestAClientLearnsTheValueSize(t *testing.T) {
	for size := 1; size <= 8; size *= 2 {
		srv := mockserver.RunT(t, mockserver.WithValueSize(size))
		other := mockserver.RunT(t, mockserver.WithValueSize(8/size))
		server := target(dialer(new(net.Dialer).DialContext), "a", dial.Address{Network: "tcp", Address: srv.Addr()}, 0)
		c, err := dial.Connect(t.Context(), server, false)
		require.NoError(t, err)
		c.Conn.Close()
		require.Equal(t, size, server.Calls.Size().Bytes())
		require.Empty(t, srv.Keys(), "the probe leaves no record behind")
		require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)

		server.Server = "b"
		server.Address.Address = other.Addr()
		_, err = dial.Connect(t.Context(), server, false)
		require.EqualError(t, err, fmt.Sprintf("throttr: can't connect to b: value size mismatch: b has %d-byte values, and a had %d-byte values; "+
			"servers that are used together must have the same", 8/size, size))
		require.Equal(t, size, server.Calls.Size().Bytes())
	}
}

func TestAnErrorOfDialNamesTheServer(t *testing.T) {
	refused := errors.New("refused")
	d := dialer(func(_ context.Context, network, address string) (net.Conn, error) {
		require.Equal(t, somewhere, dial.Address{Network: network, Address: address})
		return nil, refused
	})
	err := connect(t.Context(), d, "s")
	require.ErrorIs(t, err, dial.ErrConnect)
	require.ErrorIs(t, err, refused)
	require.EqualError(t, err, "throttr: can't connect to s: refused")
	for server, c := range map[string]struct {
		err  error
		text string
	}{
		"192.0.2.1:9":    {&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9}, Err: refused}, refused.Error()},
		"unix:///no/one": {&net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/no/one", Net: "unix"}, Err: refused}, refused.Error()},
		"s":              {nil, "the Dial of the Config has returned neither a connection nor an error"},
	} {
		d := dialer(func(context.Context, string, string) (net.Conn, error) { return nil, c.err })
		err := connect(t.Context(), d, server)
		require.EqualError(t, err, "throttr: can't connect to "+server+": "+c.text)
	}
}

// What a server can't send keeps its memory for good (H16).
func TestResponsesToAnAbandonedProbeAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		d := dialer(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
		ctx, cancel := context.WithCancel(t.Context())
		var server sync.WaitGroup
		server.Go(func() {
			probe := make([]byte, 1024)
			_, err := theirs.Read(probe)
			require.NoError(t, err)
			cancel()
			time.Sleep(100 * time.Millisecond)
			for _, b := range success {
				_, err := theirs.Write([]byte{b})
				require.NoError(t, err)
			}
			rest, err := io.ReadAll(theirs)
			require.NoError(t, err)
			require.Empty(t, rest, "nothing more is sent")
			require.NoError(t, theirs.Close())
		})
		start := time.Now()
		err := connect(ctx, d, "s")
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, time.Since(start), "the caller does not wait")
		server.Wait()
		require.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

// Each step of making a connection ends with the timeout and with the caller's context, and the network connection with
// it.
func TestWaitsAreBounded(t *testing.T) {
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	for name, c := range map[string]struct {
		received []byte // nil: dialing does not end
		tls      bool
	}{
		"dialing": {}, "TLS": {received: []byte{}, tls: true}, "no response": {received: []byte{}}, "a part": {received: success[:4]},
	} {
		for _, limit := range []time.Duration{time.Second, time.Hour} { // of the context
			testkit.Bubble(t, name+"/"+limit.String(), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				p := &peer{pieces: split(c.received, 1)}
				d := p.dialer()
				if c.received == nil {
					d = dialer(hang)
				}
				if c.tls {
					d.TLS = &tls.Config{}
				}
				start := time.Now()
				err := connect(ctx, d, "s")
				require.ErrorIs(t, err, dial.ErrConnect)
				require.Equal(t, min(limit, 5*time.Second), time.Since(start))
				require.Equal(t, limit < time.Hour, errors.Is(err, context.DeadlineExceeded), "whose time is over")
				if limit == time.Hour && c.received != nil && !c.tls {
					var timeout net.Error
					require.ErrorAs(t, err, &timeout)
					require.True(t, timeout.Timeout())
					require.ErrorContains(t, err, "no response for 5s")
					require.Equal(t, len(c.received) == 0, errors.Is(err, dial.ErrSilent))
				}
				p.conns.Wait() // the connection has been closed
				require.LessOrEqual(t, time.Since(start), min(limit+250*time.Millisecond, 5*time.Second), "for the responses that are due")
			})
		}
	}
}

// A TLS proxy forwards records one by one. A server executes together only what it reads together.
func TestTheLongestFrameIsOneTLSRecord(t *testing.T) {
	cert, roots := testkit.Certificate(t, "host", time.Now().Add(time.Hour))
	ours, theirs := net.Pipe()
	defer theirs.Close()
	d := dialer(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
	d.TLS = &tls.Config{RootCAs: roots}
	go func() {
		if c, err := dial.Connect(t.Context(), target(d, "s", somewhere, 2), false); err == nil {
			c.Conn.Write(make([]byte, codec.MaxFrame))
		}
	}()
	proxy := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{cert}})
	record := make([]byte, 2*codec.MaxFrame)
	proxy.Read(record)
	proxy.Write(success)
	n, err := proxy.Read(record)
	require.NoError(t, err)
	require.Equal(t, codec.MaxFrame, n)
}

func TestAResponseThatIsNotToAProbeIsAnError(t *testing.T) {
	type response struct {
		bytes  []byte
		hangUp bool
		want   error
	}
	var all []response
	for _, b := range [][]byte{
		{0, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {1, 1, 1, 0, 0}, {1, 1, 0, 0, 2}, {1, 2},
		[]byte("HTTP/1.1 400 Bad Request\r\n"),
		{0x19, 1, 0xff, 0x1f, '*'},              // an EVENT that is too long
		{1, 0x19, 1, 0xff, 0x1f, '*'},           // likewise
		{0x19, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, // an EVENT without a channel that can be
		join(eventOf[uint32]("*", 5), success),  // an EVENT of another size
	} {
		all = append(all, response{b, false, codec.ErrMalformed})
	}
	whole := join(success[:2], event(5), success[2:])
	for n := range whole {
		all = append(all, response{whole[:n], true, io.EOF})
	}
	for _, r := range all {
		for _, size := range []int{1, max(1, len(r.bytes))} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{pieces: split(r.bytes, size), hangUp: r.hangUp}
				err := connect(t.Context(), p.dialer(), "s")
				require.ErrorIs(t, err, dial.ErrConnect, "%q", r.bytes)
				require.ErrorIs(t, err, r.want, "%q", r.bytes)
				require.ErrorContains(t, err, "throttr: can't connect to s: ")
				p.conns.Wait() // the connection has been closed
				require.Empty(t, p.read, "nothing was sent after the probe")
			})
		}
	}
}

func TestParseAddressErrorsNameTheMistake(t *testing.T) {
	for s, want := range map[string]string{
		"":              "is neither host:port nor unix:///path",
		"h":             "is neither host:port nor unix:///path",
		"::1:9000":      "is neither host:port nor unix:///path",
		"h:":            `"h:" has no port`,
		"h:0":           `"h:0" has the port "0", which is not a number from 1 to 65535`,
		"h:65536":       `"h:65536" has the port "65536", which`,
		"unix://":       `"unix://" has no path`,
		" h:9000":       `" h:9000" has a space`,
		"h\n:9000":      `"h\n:9000" has a space`,
		"throttr://h:1": "a URL is not an address",
		"u:secret@h:1":  "an address has no credentials",
	} {
		a, err := dial.ParseAddress(s)
		require.ErrorContains(t, err, want, s)
		require.Zero(t, a)
	}
}
