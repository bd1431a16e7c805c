//go:build unix

package mockserver

import (
	"net"
	"syscall"
)

// wasReset reports whether a TCP connection was reset by its client.
func wasReset(nc net.Conn) bool {
	return socketFails(nc, func(fd int) error {
		_, err := syscall.Getpeername(fd)
		return err
	})
}

// hasError reports whether the client of a TCP connection has closed it without having read all
// responses: its host has then sent a reset.
func hasError(nc net.Conn) bool {
	return socketFails(nc, func(fd int) error {
		code, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ERROR)
		if err == nil && code != 0 {
			err = syscall.Errno(code)
		}
		return err
	})
}

// socketFails reports whether f fails for the descriptor of a TCP connection.
func socketFails(nc net.Conn, f func(fd int) error) bool {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return err == nil && failed != nil
}
