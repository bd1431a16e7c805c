package testkit

import (
	"bufio"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

// Fake is a server whose bytes the test chooses. It responds to the probe; Play then responds to
// each request, given the request's op, and returns false to close the connection.
type Fake[T codec.Value] struct {
	Play func(op codec.Op, nc net.Conn) bool

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
	noError(t, err)
	t.Cleanup(func() {
		client.Close()
		f.serving.Wait()
	})
	return client
}

// Dial is for Config.Dial.
func (f *Fake[T]) Dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	f.serving.Go(func() { f.serve(theirs) })
	return ours, nil
}

// Wait waits until no connection is served any more.
func (f *Fake[T]) Wait() { f.serving.Wait() }

func (f *Fake[T]) serve(nc net.Conn) {
	defer nc.Close()
	if Handshake(nc, codec.Size[T]()) != nil {
		return
	}
	b := buffered{nc, bufio.NewReader(nc)}
	for {
		op, err := b.in.ReadByte()
		switch {
		case err != nil:
			return
		case codec.Op(op) == codec.OpUnsubscribe && b.leavesEvery():
			if _, err := nc.Write([]byte{1}); err != nil {
				return
			}
		case !f.Play(codec.Op(op), b):
			return
		}
	}
}

// buffered is a connection whose next bytes can be looked at.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

// Read reads what was looked at first.
func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// leavesEvery consumes the rest of an UNSUBSCRIBE if it is from a channel that every connection is
// subscribed to, and reports whether it is: a connection for subscriptions ends so.
func (b buffered) leavesEvery() bool {
	n, err := b.in.Peek(1)
	if err != nil {
		return false
	}
	name, err := b.in.Peek(1 + int(n[0]))
	if err != nil || string(name[1:]) != "*" && len(name[1:]) != 2*len(codec.ConnID{}) {
		return false
	}
	b.in.Discard(len(name))
	return true
}

// Encode returns the bytes of frames.
func Encode(t testing.TB, frames ...codec.Frame) []byte {
	t.Helper()
	var b []byte
	for _, f := range frames {
		var err error
		b, err = f.AppendBinary(b)
		noError(t, err)
	}
	return b
}
