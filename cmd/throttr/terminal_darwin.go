package main

import "syscall"

// The requests of ioctl that read and set the mode of a terminal.
const (
	getTermios = syscall.TIOCGETA
	setTermios = syscall.TIOCSETA
)
