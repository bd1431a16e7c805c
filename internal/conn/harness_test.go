package conn

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// link is a connection whose other end the test holds.
type link struct {
	*testing.T
	*Conn
	server net.Conn
}

func newLink(t *testing.T, ours, theirs net.Conn, o Options) link {
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 512
	}
	if o.MaxQueued == 0 {
		o.MaxQueued = 10_000
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = 10 * time.Second
	}
	o.Calls, o.Counters = NewCalls(SizeOf(2)), new(Counters)
	l := link{t, New(ours, nil, o), theirs}
	t.Cleanup(func() {
		l.Close(errTest)
		theirs.Close()
	})
	return l
}

// errTest is the reason of connections that end with their test.
var errTest = io.ErrClosedPipe

// onPipe runs a test of a connection over an in-memory pipe, in a bubble of synctest. The
// pipe has no buffer, so that a write lasts until the test has read it.
func onPipe(t *testing.T, o Options, f func(t *testing.T, l link)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		f(t, newLink(t, ours, theirs, o))
	})
}

// tcpPair returns the two ends of a TCP connection.
func tcpPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	ours, err = net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	theirs, err = listener.Accept()
	require.NoError(t, err)
	return ours, theirs
}

// call returns a call of n QUERYs of so many bytes each.
func (l link) call(n, size int) *Call {
	l.Helper()
	cl := l.options.Calls.Get()
	for range n {
		require.NoError(l, Add(cl, codec.Query{Key: bytes.Repeat([]byte{'k'}, size-2)}))
	}
	return cl
}

// enqueue queues a call of n QUERYs of so many bytes each, and waits until the connection
// has done what it can.
func (l link) enqueue(n, size int) *Call {
	l.Helper()
	cl := l.call(n, size)
	require.NoError(l, l.Enqueue(cl))
	synctest.Wait()
	return cl
}

// received returns the size of one write of the connection.
func (l link) received() int {
	l.Helper()
	n, err := l.server.Read(make([]byte, 1<<20))
	require.NoError(l, err)
	synctest.Wait()
	return n
}

// send sends bytes of the server.
func (l link) send(p ...byte) {
	l.Helper()
	_, err := l.server.Write(p)
	require.NoError(l, err)
}

// respond sends n responses to QUERYs: not found.
func (l link) respond(n int) {
	l.Helper()
	l.send(make([]byte, n)...)
	synctest.Wait()
}

// outcome waits for a call.
func (l link) outcome(cl *Call) (sent bool, err error) {
	l.Helper()
	done, sent, err := cl.Wait(context.Background())
	require.True(l, done)
	return sent, err
}

// requireDone requires that a call has its responses.
func (l link) requireDone(cl *Call) {
	l.Helper()
	require.True(l, cl.isDone())
	_, err := l.outcome(cl)
	require.NoError(l, err)
	require.Len(l, cl.Responses, cl.Len())
}

// query makes a call of one QUERY with a key of one byte: a frame of queryFrame bytes.
func (l link) query(ctx context.Context) (done, sent bool, err error) {
	cl := l.call(1, queryFrame)
	if err := l.Enqueue(cl); err != nil {
		return true, false, err
	}
	done, sent, err = cl.Wait(ctx)
	if done {
		l.options.Calls.Put(cl)
	}
	return done, sent, err
}

const queryFrame = 3

// event encodes an EVENT.
func event(t testing.TB, channel, payload string) []byte {
	t.Helper()
	p, err := codec.Event[uint16]{Channel: []byte(channel), Payload: []byte(payload)}.AppendBinary(nil)
	require.NoError(t, err)
	return p
}

// requireNoGoroutines requires that no goroutine of a connection is left.
func requireNoGoroutines(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		buf := make([]byte, 1<<20)
		for _, s := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(s, "conn.(*Conn") {
				return false
			}
		}
		return true
	}, 5*time.Second, time.Millisecond, "a goroutine is left")
}

// respond writes one byte for each request of the given size.
func respond(nc net.Conn, size int) {
	in, out := make([]byte, 64<<10), bytes.Repeat([]byte{1}, 64<<10)
	for rest := 0; ; {
		n, err := nc.Read(in)
		if err != nil {
			return
		}
		rest += n
		if _, err := nc.Write(out[:rest/size]); err != nil {
			return
		}
		rest %= size
	}
}
