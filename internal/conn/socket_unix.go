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
	raw                 syscall.RawConn
	in, out             transfer
	readOnce, writeOnce func(fd uintptr) bool // made once, so that a read or write does not allocate
}

// transfer is a read or a write that does not block.
type transfer struct {
	buf []byte
	n   int
	err error
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
	s.readOnce = func(fd uintptr) bool { return s.in.try(syscall.Read, fd) }
	s.writeOnce = func(fd uintptr) bool { return s.out.try(syscall.Write, fd) }
	return s
}

// write returns how many bytes the socket has accepted. Less than len(src) is no error.
func (s *socket) write(src []byte) (n int, err error) {
	s.out = transfer{buf: src}
	if err := s.raw.Write(s.writeOnce); err != nil {
		return 0, err
	}
	return s.out.n, s.out.err
}

// read returns how many bytes there were. None is no error. The error is io.EOF at the end
// of the stream.
func (s *socket) read(dst []byte) (n int, err error) {
	s.in = transfer{buf: dst, n: -1}
	if err := s.raw.Read(s.readOnce); err != nil {
		return 0, err
	}
	if s.in.n == 0 {
		return 0, io.EOF
	}
	return max(s.in.n, 0), s.in.err
}

// try makes the system call. It returns true so that package net does not wait for the socket
// to become ready.
func (a *transfer) try(f func(fd int, p []byte) (int, error), fd uintptr) bool {
	for {
		n, err := f(int(fd), a.buf)
		switch err {
		case nil:
			a.n = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
		default:
			a.err = err
		}
		return true
	}
}
