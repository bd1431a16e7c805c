package goredis_test

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/throttr-go/throttr/internal/testkit"
)

// cutter is a proxy in front of a server. Unless it passes responses, it ends a connection when the
// server sends the first one to a script.
type cutter struct {
	addr string
	pass atomic.Bool
}

// cutResponses starts a proxy that ends with the test.
func cutResponses(t testing.TB, s *testkit.Redis) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String()}
	testkit.Serve(t, l, func(client net.Conn) { c.serve(s, client) })
	return c
}

// serve forwards requests and responses until one of the sides closes its connection. After an
// EVALSHA or EVAL, it ends both unless responses are passed.
func (c *cutter) serve(s *testkit.Redis, client net.Conn) {
	server, err := net.Dial("tcp", s.Addr)
	if err != nil {
		client.Close()
		return
	}
	var script atomic.Bool
	testkit.Relay(client, server, io.TeeReader(client, watch{&script}),
		until{server, func() bool { return script.Load() && !c.pass.Load() }})
}

// until is a reader that ends, also with what it has just read, when over returns true.
type until struct {
	io.Reader
	over func() bool
}

// Read implements io.Reader.
func (u until) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if u.over() {
		return 0, io.EOF
	}
	return n, err
}

// watch notes that a script is run.
type watch struct{ script *atomic.Bool }

// Write implements io.Writer.
func (w watch) Write(request []byte) (int, error) {
	w.script.Store(bytes.Contains(bytes.ToLower(request), []byte("eval")))
	return len(request), nil
}
