package mockserver

import (
	"context"
	"errors"
	"net"
)

// ErrRefused is returned by [Server.Dial] while the server accepts no connections: it is
// closed or restarting, or [Server.Refuse] was called.
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
	if !s.admit(server, false) {
		return nil, ErrRefused
	}
	return client, nil
}
