//go:build unix

package conn

import (
	"io"
	"net"
	"syscall"
)

// direct reads and writes what a socket has or takes at once, so that nobody is held up.
// One goroutine at a time may read, one may write.
type direct struct {
	raw           syscall.RawConn
	in, out       attempt
	read1, write1 func(fd uintptr) bool // made once, for an attempt not to allocate
}

// attempt is a read or write that does not block.
type attempt struct {
	buf []byte
	n   int
	err error
}

// newDirect returns nil if nc is not a plain socket.
func newDirect(nc net.Conn) *direct {
	var raw syscall.RawConn
	var err error
	switch nc := nc.(type) {
	case *net.TCPConn:
		raw, err = nc.SyscallConn()
	case *net.UnixConn:
		raw, err = nc.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.read1 = func(fd uintptr) bool { return d.in.make(syscall.Read, fd) }
	d.write1 = func(fd uintptr) bool { return d.out.make(syscall.Write, fd) }
	return d
}

// write returns how many bytes the socket has taken. Less than all of them is no error.
func (d *direct) write(src []byte) (n int, err error) {
	d.out = attempt{buf: src}
	if err := d.raw.Write(d.write1); err != nil {
		return 0, err
	}
	return d.out.n, d.out.err
}

// read returns how many bytes there were. None is no error; at the end, it is io.EOF.
func (d *direct) read(dst []byte) (n int, err error) {
	d.in = attempt{buf: dst, n: -1}
	if err := d.raw.Read(d.read1); err != nil {
		return 0, err
	}
	if d.in.n == 0 {
		return 0, io.EOF
	}
	return max(d.in.n, 0), d.in.err
}

// make makes the attempt. That it returns true tells package net not to wait.
func (a *attempt) make(f func(fd int, p []byte) (int, error), fd uintptr) bool {
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
