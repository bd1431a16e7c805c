package throttr_test

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

// fake is a server whose responses the test chooses. It responds to the probe. Then it calls
// play for the op of each request; play writes the response, and returns false to close the
// connection.
type fake[T codec.Value] struct {
	play func(op codec.Op, nc net.Conn) bool

	mu   sync.Mutex // guards open and most
	open int        // open connections
	most int        // the largest number of open connections
	all  sync.WaitGroup
}

func (f *fake[T]) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	f.mu.Lock()
	f.open++
	f.most = max(f.most, f.open)
	f.mu.Unlock()
	f.all.Go(func() { f.serve(theirs) })
	return &watched{Conn: ours, closed: func() {
		f.mu.Lock()
		f.open--
		f.mu.Unlock()
	}}, nil
}

// watched is a connection that calls closed when it is closed.
type watched struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *watched) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

func (f *fake[T]) serve(nc net.Conn) {
	defer nc.Close()
	probe, err := codec.AppendProbe(nil, make([]byte, 16))
	if err != nil {
		panic(err)
	}
	if _, err := io.ReadFull(nc, probe); err != nil {
		return
	}
	responses := make([]byte, codec.ProbeResponses)
	responses[0] = 1
	responses[map[int]int{1: 1, 2: 2, 4: 3, 8: 4}[codec.Size[T]()]] = 1
	if _, err := nc.Write(responses); err != nil {
		return
	}
	op := make([]byte, 1)
	for {
		if _, err := io.ReadFull(nc, op); err != nil || !f.play(codec.Op(op[0]), nc) {
			return
		}
	}
}

// counts returns the number of open connections, and the largest that it has been.
func (f *fake[T]) counts() (open, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, f.most
}

// clientOf returns a client of f.
func clientOf[T codec.Value](t testing.TB, f *fake[T], cfg throttr.Config) *throttr.Client[T] {
	t.Helper()
	cfg.Dial = f.dial
	client, err := throttr.Connect[T](t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		f.all.Wait()
	})
	return client
}

// says returns a fake that responds to every request with the same bytes.
func says[T codec.Value](response []byte) *fake[T] {
	return &fake[T]{play: func(_ codec.Op, nc net.Conn) bool {
		_, err := nc.Write(response)
		return err == nil
	}}
}

// bytesOf returns the encoding of frames.
func bytesOf(t testing.TB, frames ...codec.Frame) []byte {
	t.Helper()
	var b []byte
	for _, f := range frames {
		var err error
		b, err = f.AppendBinary(b)
		require.NoError(t, err)
	}
	return b
}
