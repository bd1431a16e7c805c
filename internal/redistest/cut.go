package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Cut is a proxy in front of a server. Unless it passes responses, it ends a connection when the
// server sends the first one to a script.
type Cut struct {
	Addr string
	pass atomic.Bool
}

// CutResponses starts a proxy that ends with the test.
func CutResponses(t testing.TB, s *Server) *Cut {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cut{Addr: l.Addr().String()}
	serve(t, l, func(client net.Conn) { c.serve(s, client) })
	return c
}

// serve serves each connection of l in a goroutine, until the test ends.
func serve(t testing.TB, l net.Listener, each func(client net.Conn)) {
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			serving.Go(func() { each(client) })
		}
	})
}

// Pass sets whether responses are passed.
func (c *Cut) Pass(pass bool) { c.pass.Store(pass) }

// serve forwards requests and responses until one of the sides closes its connection. After an
// EVALSHA or EVAL, it ends both unless responses are passed.
func (c *Cut) serve(s *Server, client net.Conn) {
	server, err := net.Dial("tcp", s.Addr)
	if err != nil {
		client.Close()
		return
	}
	var script atomic.Bool
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		io.Copy(server, io.TeeReader(client, watch{&script}))
	})
	both.Go(func() {
		defer client.Close()
		defer server.Close()
		for buf := make([]byte, 64<<10); ; {
			n, err := server.Read(buf)
			if err != nil || script.Load() && !c.pass.Load() {
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	both.Wait()
}

// watch notes that a script is run.
type watch struct{ script *atomic.Bool }

// Write implements io.Writer.
func (w watch) Write(request []byte) (int, error) {
	w.script.Store(bytes.Contains(bytes.ToLower(request), []byte("eval")))
	return len(request), nil
}
