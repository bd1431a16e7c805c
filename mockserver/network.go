package mockserver

import (
	"context"
	"errors"
	"iter"
	"net"
	"slices"
	"time"
)

// ErrRefused is returned by [Server.Dial] while the server accepts no connections: it is
// closed, or [Server.Refuse] was called.
var ErrRefused = errors.New("mockserver: connection refused")

// Dial connects in memory, whatever the server listens on. The connection has no buffer:
// a write returns when the other side has read all of it. It supports deadlines, and
// blocks durably in the sense of testing/synctest.
//
// Errors: [ErrRefused]; the error of ctx if that has ended.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if !s.admit(server) {
		return nil, ErrRefused
	}
	return client, nil
}

// listen begins to accept connections at the server's address. If its port is 0, it
// becomes the port that the system has chosen. No other goroutine uses s.addr or s.listener meanwhile.
func (s *Server) listen() error {
	if s.network == "memory" {
		return nil
	}
	ln, err := net.Listen(s.network, s.addr)
	if err != nil {
		return err
	}
	s.listener = ln
	s.addr = ln.Addr().String()
	s.wg.Go(func() { s.accept(ln) })
	return nil
}

func (s *Server) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(time.Millisecond) // no file descriptor is left, or the client is gone again
		case !s.admit(nc):
			nc.Close()
		}
	}
}

// admit takes a connection. It returns false if the server refuses connections.
func (s *Server) admit(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse || s.closed {
		return false
	}
	s.waiting = append(s.waiting, nc)
	s.serveWaiting()
	return true
}

// serveWaiting begins to serve the connections that wait, unless they are held. The caller holds s.mu.
func (s *Server) serveWaiting() {
	for len(s.waiting) > 0 && !s.hold {
		c := s.newConn(s.waiting[0])
		s.waiting = s.waiting[1:]
		if wasReset(c.net) {
			s.violate(c, breachf("H15", "the connection was reset before it was accepted, which kills a real server"))
			continue
		}
		s.conns = append(s.conns, c)
		s.wg.Go(c.read)
		s.wg.Go(c.write)
	}
}

// open yields the connections that have not ended. The caller holds s.mu.
func (s *Server) open() iter.Seq[*conn] {
	return func(yield func(*conn) bool) {
		for _, c := range s.conns {
			if !c.gone && !yield(c) {
				return
			}
		}
	}
}

// forget removes a connection whose goroutines have ended.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.close()
	s.conns = slices.DeleteFunc(s.conns, func(o *conn) bool { return o == c })
}

// Conns returns how many connections are open. A client that has closed one may still be counted for a moment.
func (s *Server) Conns() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.open() {
		n++
	}
	return n
}

// HoldAccept makes the server accept no connections, as one that is busy with a long response, until
// it is called with false. Clients can connect meanwhile; they get no response. A connection that
// was reset by then is a [Violation] (H15).
func (s *Server) HoldAccept(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = on
	s.serveWaiting()
}

// Refuse makes the server refuse new connections, or accept them again. Over a socket it
// closes them at once; [Server.Dial] returns [ErrRefused]. Open connections stay.
func (s *Server) Refuse(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = on
}

// Disconnect drops all connections. Responses that have not been sent yet are lost.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.drop()
	}
}

// HalfOpen leaves all connections half open, as a host does that has vanished: what
// clients send on them is lost, they get no response, and they do not learn that the
// connection is dead. Connections that begin later work.
func (s *Server) HalfOpen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.halfOpen = true
		c.out = nil
	}
}
