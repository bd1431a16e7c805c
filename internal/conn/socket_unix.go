//go:build unix

package conn

import (
	"io"
	"net"
	"syscall"
)

// socket reads and writes without blocking. One goroutine may read and another one may
// write at the same time.
type socket struct {
	raw     syscall.RawConn
	in, out transfer
}

// transfer is a read or a write that does not block.
type transfer struct {
	once func(fd uintptr) bool // makes the system call; it is made once, so that a transfer does not allocate
	buf  []byte
	n    int
	err  error // ends the connection
}

// newSocket returns nil if nc is not a plain socket.
func newSocket(nc net.Conn) *socket {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil
	}
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	s.in.once = func(fd uintptr) bool { return s.in.try(syscall.Read, fd) }
	s.out.once = func(fd uintptr) bool { return s.out.try(syscall.Write, fd) }
	return s
}

// write returns how many bytes the socket has accepted. Less than len(src) is no error.
func (s *socket) write(src []byte) (n int, err error) { return s.out.run(s.raw.Write, src) }

// read returns how many bytes there were. None is no error. The error is io.EOF at the end
// of the stream.
func (s *socket) read(dst []byte) (n int, err error) { return s.in.run(s.raw.Read, dst) }

// run reads to buf or writes it, which is not empty, by way of a method of the RawConn.
func (t *transfer) run(method func(func(fd uintptr) bool) error, buf []byte) (n int, err error) {
	t.buf = buf
	t.n = 0
	if err := method(t.once); err != nil {
		return 0, err
	}
	return t.n, t.err
}

// try makes the system call. It returns true so that package net does not wait for the socket
// to become ready.
func (t *transfer) try(call func(fd int, p []byte) (int, error), fd uintptr) bool {
	for {
		n, err := call(int(fd), t.buf)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
		case err == nil && n == 0: // only a read
			t.err = io.EOF
		case err == nil:
			t.n = n
		default:
			t.err = err
		}
		return true
	}
}
