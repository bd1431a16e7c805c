package dial_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/mockserver"
)

var somewhere = dial.Address{Network: "tcp", Address: "host:1"}

// success holds the responses of a server of uint16 to a probe, and to a QUERY of the empty key.
var success = []byte{1, 0, 1, 0, 0, 0}

// peer is the server's end of connections. It reads a probe, writes the given pieces, and
// keeps what it reads after the probe.
type peer struct {
	pieces [][]byte
	hangUp bool // after the last piece

	mu    sync.Mutex
	read  []byte // after the probe
	conns sync.WaitGroup
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
	probe, err := codec.AppendProbe(nil, make([]byte, 16))
	if err != nil {
		panic(err)
	}
	probe = append(probe, 2, 0) // QUERY of the empty key
	if _, err := io.ReadFull(nc, probe); err != nil {
		return
	}
	for _, piece := range p.pieces {
		if _, err := nc.Write(piece); err != nil {
			break
		}
	}
	if p.hangUp {
		return
	}
	rest, _ := io.ReadAll(nc)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = append(p.read, rest...)
}

func dialer(d func(context.Context, string, string) (net.Conn, error)) *dial.Dialer {
	return &dial.Dialer{Dial: d, Timeout: 5 * time.Second}
}

// split cuts b into pieces of n bytes.
func split(b []byte, n int) (pieces [][]byte) {
	for len(b) > n {
		pieces, b = append(pieces, b[:n]), b[n:]
	}
	return append(pieces, b)
}

// event encodes an EVENT with a payload of n bytes.
func event(t testing.TB, n int) []byte {
	t.Helper()
	b, err := codec.Event[uint16]{Channel: []byte("*"), Payload: bytes.Repeat([]byte{1}, n)}.AppendBinary(nil)
	require.NoError(t, err)
	return b
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestProbeResponsesMayComeInAnyPieces(t *testing.T) {
	small, large := event(t, 5), event(t, codec.MaxFrame-5)
	for name, c := range map[string]struct {
		bytes  []byte
		events int
		early  []byte
	}{
		"statuses":                   {bytes: success},
		"an EVENT first":             {bytes: join(small, success), events: 1},
		"large EVENTs first":         {bytes: join(large, large, large, large, success), events: 4},
		"EVENTs between the replies": {bytes: join(success[:1], small, small, success[1:2], large, success[2:4], small, success[4:]), events: 4},
		"an EVENT after":             {bytes: join(success, small), early: small},
		"EVENTs everywhere":          {bytes: join(small, success[:4], small, success[4:], small), events: 2, early: small},
	} {
		for _, size := range []int{1, 2, 7, 1000, 16 << 10, len(c.bytes)} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{pieces: split(c.bytes, size)}
				var events atomic.Uint64
				nc, early, err := dial.Connect[uint16](t.Context(), p.dialer(), "s", somewhere, parking.NewTracker(parking.Automatic), &events)
				require.NoError(t, err, "%s in pieces of %d", name, size)
				require.EqualValues(t, c.events, events.Load(), "%s in pieces of %d", name, size)
				// What was not read with the last status is still on its way.
				rest := make([]byte, len(c.early)-len(early))
				_, err = io.ReadFull(nc, rest)
				require.NoError(t, err)
				require.True(t, bytes.Equal(c.early, join(early, rest)), "%s in pieces of %d", name, size)
				nc.Close()
				p.conns.Wait()
				require.Empty(t, p.read)
			})
		}
	}
}

func TestEarlyBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{pieces: [][]byte{join(success, bytes.Repeat(event(t, 1000), 100))}}
		nc, early, err := dial.Connect[uint16](t.Context(), p.dialer(), "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
		require.NoError(t, err)
		require.LessOrEqual(t, len(early), 16<<10, "a connection's buffer holds them")
		nc.Close()
		p.conns.Wait()
	})
}

func TestAResponseThatIsNotToAProbeIsAnError(t *testing.T) {
	for _, response := range [][]byte{
		{0, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {1, 1, 1, 0, 0}, {1, 1, 0, 0, 2}, {1, 2},
		[]byte("HTTP/1.1 400 Bad Request\r\n"),
		{0x19, 0, 0xff, 0xff},       // an EVENT that is too long
		{1, 0x19, 0, 0xff, 0xff, 0}, // likewise
	} {
		for _, size := range []int{1, len(response)} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{pieces: split(response, size)}
				_, _, err := dial.Connect[uint16](t.Context(), p.dialer(), "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
				require.ErrorIs(t, err, dial.ErrConnect, "%q", response)
				require.ErrorIs(t, err, codec.ErrMalformed, "%q", response)
				p.conns.Wait() // the connection has been closed
				require.Empty(t, p.read, "nothing was sent after the probe")
			})
		}
	}
}

func TestAConnectionThatEndsDuringTheProbeIsAnError(t *testing.T) {
	whole := join(success[:2], event(t, 5), success[2:])
	for n := range whole {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{pieces: [][]byte{whole[:n]}, hangUp: true}
			_, _, err := dial.Connect[uint16](t.Context(), p.dialer(), "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
			require.ErrorIs(t, err, dial.ErrConnect)
			require.ErrorIs(t, err, io.EOF)
			require.ErrorContains(t, err, "throttr: can't connect to s: ")
		})
	}
}

//evidence:client A server of another value size is sent only the probe
func TestAServerOfAnotherValueSizeIsSentOnlyTheProbe(t *testing.T) {
	responses := map[int][]byte{1: {1, 1, 0, 0, 0, 0}, 2: {1, 0, 1, 0, 0, 0}, 4: {1, 0, 0, 1, 0, 0}, 8: {1, 0, 0, 0, 1, 0}}
	for actual, response := range responses {
		for client, connect := range map[int]func(context.Context, *dial.Dialer) (net.Conn, error){
			1: connectAs[uint8], 2: connectAs[uint16], 4: connectAs[uint32], 8: connectAs[uint64],
		} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{pieces: [][]byte{response}}
				nc, err := connect(t.Context(), p.dialer())
				if client == actual {
					require.NoError(t, err)
					nc.Close()
				} else {
					require.Nil(t, nc)
					require.ErrorIs(t, err, dial.ErrConnect)
					require.ErrorIs(t, err, dial.ErrValueSizeMismatch)
					var mismatch *dial.ValueSizeError
					require.ErrorAs(t, err, &mismatch)
					require.Equal(t, dial.ValueSizeError{Server: "s", Client: client, Actual: actual}, *mismatch)
				}
				p.conns.Wait()
				require.Empty(t, p.read)
			})
		}
	}
}

func connectAs[T codec.Value](ctx context.Context, d *dial.Dialer) (net.Conn, error) {
	nc, _, err := dial.Connect[T](ctx, d, "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
	return nc, err
}

func TestAValueSizeErrorNamesBothSizes(t *testing.T) {
	err := &dial.ValueSizeError{Server: "s", Client: 1, Actual: 8}
	require.EqualError(t, err, "throttr: value size mismatch: the client's values are 1 byte wide, those of s 8 bytes (use uint64)")
}

func TestProbeSizeOfMockServers(t *testing.T) {
	for size := 1; size <= 8; size *= 2 {
		srv := mockserver.RunT(t, mockserver.WithValueSize(size))
		a, err := dial.ParseAddress(srv.Addr())
		require.NoError(t, err)
		got, err := dial.ProbeSize(t.Context(), dialer(new(net.Dialer).DialContext), srv.Addr(), a)
		require.NoError(t, err)
		require.Equal(t, size, got)
		require.Empty(t, srv.Keys(), "the probe leaves no record behind")
		require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
	}
}

func TestConnectOverAUnixSocket(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "s")))
	a, err := dial.ParseAddress(srv.Addr())
	require.NoError(t, err)
	nc, _, err := dial.Connect[uint16](t.Context(), dialer(new(net.Dialer).DialContext), srv.Addr(), a, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
	require.NoError(t, err)
	nc.Close()
}

func TestAnErrorOfDialNamesTheServer(t *testing.T) {
	refused := errors.New("refused")
	d := dialer(func(_ context.Context, network, address string) (net.Conn, error) {
		require.Equal(t, somewhere, dial.Address{Network: network, Address: address})
		return nil, refused
	})
	_, _, err := dial.Connect[uint16](t.Context(), d, "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
	require.ErrorIs(t, err, dial.ErrConnect)
	require.ErrorIs(t, err, refused)
	require.EqualError(t, err, "throttr: can't connect to s: refused")
	_, err = dial.ProbeSize(t.Context(), d, "s", somewhere)
	require.EqualError(t, err, "throttr: can't connect to s: refused")
}

func TestASilentServerIsBoundedByTheTimeout(t *testing.T) {
	for name, pieces := range map[string][][]byte{"nothing": nil, "a part": {success[:4]}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{pieces: pieces}
				start := time.Now()
				_, _, err := dial.Connect[uint16](t.Context(), p.dialer(), "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
				require.ErrorIs(t, err, dial.ErrConnect)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's deadline has not passed")
				var timeout net.Error
				require.ErrorAs(t, err, &timeout)
				require.True(t, timeout.Timeout())
				require.ErrorContains(t, err, "no response for 5s")
				require.Equal(t, 5*time.Second, time.Since(start))
				p.conns.Wait() // the connection has been closed
			})
		})
	}
}

func TestTheCallersContextEndsAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, _, err := dial.Connect[uint16](ctx, p.dialer(), "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
		require.ErrorIs(t, err, dial.ErrConnect)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		p.conns.Wait()
	})
}

func TestTheCallersContextEndsDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d := dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		_, _, err := dial.Connect[uint16](ctx, d, "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// hello returns the server name that a TLS client asks for.
func hello(t *testing.T, conf *tls.Config, address string) (serverName string) {
	ours, theirs := net.Pipe()
	var server sync.WaitGroup
	server.Go(func() {
		defer theirs.Close()
		tls.Server(theirs, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			serverName = h.ServerName
			return nil, errors.New("seen enough")
		}}).Handshake()
	})
	d := dialer(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
	d.TLS = conf
	_, _, err := dial.Connect[uint16](t.Context(), d, "s", dial.Address{Network: "tcp", Address: address}, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
	require.ErrorIs(t, err, dial.ErrConnect)
	server.Wait()
	return serverName
}

func TestTheServerNameOfTLSDefaultsToTheHost(t *testing.T) {
	conf := &tls.Config{}
	require.Equal(t, "example.org", hello(t, conf, "example.org:9000"))
	require.Empty(t, conf.ServerName, "the caller's configuration is not changed")
	require.Equal(t, "other.example", hello(t, &tls.Config{ServerName: "other.example"}, "example.org:9000"))
}

func TestATLSHandshakeThatNeverEndsIsBoundedByTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var server sync.WaitGroup
		server.Go(func() { io.ReadAll(theirs) })
		d := dialer(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
		d.TLS = &tls.Config{}
		start := time.Now()
		_, _, err := dial.Connect[uint16](t.Context(), d, "s", somewhere, parking.NewTracker(parking.Automatic), new(atomic.Uint64))
		require.ErrorIs(t, err, dial.ErrConnect)
		require.Equal(t, 5*time.Second, time.Since(start))
		server.Wait() // the connection has been closed
	})
}
