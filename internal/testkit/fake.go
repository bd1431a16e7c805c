package testkit

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

// Fake is a server whose bytes the test chooses. It responds to the probe; Play then responds to
// each request, given the request's op, and returns false to close the connection.
type Fake[T codec.Value] struct {
	Play func(op codec.Op, nc net.Conn) bool

	mu      sync.Mutex // guards open and most
	open    int        // connections that are open
	most    int        // the largest number of connections that were open at one time
	serving sync.WaitGroup
}

// Responding returns a Fake that responds to every request with the same bytes.
func Responding[T codec.Value](response []byte) *Fake[T] {
	return &Fake[T]{Play: func(_ codec.Op, nc net.Conn) bool {
		_, err := nc.Write(response)
		return err == nil
	}}
}

// Client returns a client of the fake that is closed at the end of the test.
func (f *Fake[T]) Client(t testing.TB, cfg throttr.Config) *throttr.Client[T] {
	t.Helper()
	cfg.Dial = f.Dial
	client, err := throttr.Connect[T](t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		f.serving.Wait()
	})
	return client
}

// Dial is for Config.Dial.
func (f *Fake[T]) Dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	f.mu.Lock()
	f.open++
	f.most = max(f.most, f.open)
	f.mu.Unlock()
	f.serving.Go(func() { f.serve(theirs) })
	return &reportingConn{Conn: ours, closed: func() {
		f.mu.Lock()
		f.open--
		f.mu.Unlock()
	}}, nil
}

// Wait waits until no connection is served any more.
func (f *Fake[T]) Wait() { f.serving.Wait() }

// Conns returns how many connections are open, and the largest number that were open at one
// time.
func (f *Fake[T]) Conns() (open, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, f.most
}

func (f *Fake[T]) serve(nc net.Conn) {
	defer nc.Close()
	question, err := codec.AppendProbe(nil, make([]byte, 16))
	if err != nil {
		panic(err)
	}
	question = append(question, 2, 0) // QUERY of the empty key
	if _, err := io.ReadFull(nc, question); err != nil {
		return
	}
	response := make([]byte, codec.ProbeResponses+1)
	response[0] = 1
	response[map[int]int{1: 1, 2: 2, 4: 3, 8: 4}[codec.Size[T]()]] = 1
	if _, err := nc.Write(response); err != nil {
		return
	}
	op := make([]byte, 1)
	for {
		if _, err := io.ReadFull(nc, op); err != nil || !f.Play(codec.Op(op[0]), nc) {
			return
		}
	}
}

// reportingConn calls closed when it is closed for the first time.
type reportingConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close closes the connection.
func (c *reportingConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// Encode returns the bytes of frames.
func Encode(t testing.TB, frames ...codec.Frame) []byte {
	t.Helper()
	var b []byte
	for _, f := range frames {
		var err error
		b, err = f.AppendBinary(b)
		require.NoError(t, err)
	}
	return b
}
