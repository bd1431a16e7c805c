//go:build unix

package throttr

import (
	"net"
	"syscall"
)

// direct writes to a socket what it takes at once, so that a caller can write without
// being held up. For one goroutine at a time.
type direct struct {
	raw    syscall.RawConn
	src    []byte
	n      int
	err    error
	write1 func(fd uintptr) bool // made once, for a write not to allocate
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
	d.write1 = d.try
	return d
}

// write returns how many bytes the socket has taken. Less than all of them is no error.
func (d *direct) write(src []byte) (n int, err error) {
	d.src, d.n, d.err = src, 0, nil
	if err := d.raw.Write(d.write1); err != nil {
		return d.n, err
	}
	return d.n, d.err
}

// try makes one attempt. That it returns true tells the net package not to wait.
func (d *direct) try(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), d.src)
		d.n = max(n, 0)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return true
		}
		d.err = err
		return true
	}
}
