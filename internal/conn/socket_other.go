//go:build !unix

package conn

import "net"

// socket reads and writes without blocking, which this platform can't. The goroutines of a
// connection do all of its I/O.
type socket struct{}

func newSocket(net.Conn) *socket { return nil }

func (*socket) read([]byte) (int, error)  { panic("unreachable: newSocket returns nil") }
func (*socket) write([]byte) (int, error) { panic("unreachable: newSocket returns nil") }
