//go:build unix

package mockserver

import (
	"net"
	"syscall"
)

// wasReset reports whether a TCP connection was reset by its client, or by the host of a client that has closed it
// without having read all responses.
func wasReset(nc net.Conn) bool {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	var reset error
	err = raw.Control(func(fd uintptr) { _, reset = syscall.Getpeername(int(fd)) })
	return err == nil && reset != nil
}
