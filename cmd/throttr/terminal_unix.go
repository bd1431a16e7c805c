//go:build linux || darwin

package main

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// terminalSize returns the number of columns and rows of a terminal. It returns false if f is not
// one.
func terminalSize(f *os.File) (width, height int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	if !control(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) {
		return 0, 0, false
	}
	return int(size.columns), int(size.rows), true
}

// readKeys makes a terminal pass on each key at once and print none. Signals of keys remain. It
// returns false if f is not a terminal.
func readKeys(f *os.File) (restore func(), ok bool) {
	var before syscall.Termios
	if !control(f, getTermios, unsafe.Pointer(&before)) {
		return nil, false
	}
	mode := before
	mode.Lflag &^= syscall.ICANON | syscall.ECHO
	mode.Cc[syscall.VMIN], mode.Cc[syscall.VTIME] = 1, 0
	if !control(f, setTermios, unsafe.Pointer(&mode)) {
		return nil, false
	}
	return func() { control(f, setTermios, unsafe.Pointer(&before)) }, true
}

// control calls ioctl with an argument that it reads or writes.
func control(f *os.File, request uintptr, argument unsafe.Pointer) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(argument))
	return errno == 0
}

// sizeChanges returns a channel that receives when the size of the terminal has changed.
func sizeChanges() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c
}
