//go:build unix

package testkit

import (
	"syscall"
	"testing"
)

// Freeze stops the process. It keeps its connections and does not respond.
func (s *Redis) Freeze(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Thaw continues the process after Freeze.
func (s *Redis) Thaw(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Redis) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	noError(t, s.cmd.Process.Signal(sig))
}
