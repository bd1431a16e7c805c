package testkit

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/throttr-go/throttr/mockserver"
)

// ErrGate is the error of a [Gate] that fails.
var ErrGate = errors.New("the gate is closed")

// Gate connects to a server in memory. A test can have it hang or fail.
type Gate struct {
	Server *mockserver.Server
	Hang   atomic.Bool // Dial waits for its ctx to end
	Fail   atomic.Bool // Dial returns ErrGate
}

// Dial is for Config.Dial.
func (g *Gate) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if g.Hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if g.Fail.Load() {
		return nil, ErrGate
	}
	return g.Server.Dial(ctx)
}
