//go:build unix

package testkit

import (
	"syscall"
	"testing"
	"time"
)

// CutOff stops the process of a primary, whose connections stay open, and lets it go on when its
// replica has taken over. It returns when the old primary follows the new one.
func (c *Cluster) CutOff(t testing.TB, primary int) {
	t.Helper()
	old := c.Primaries[primary]
	c.setTimeout(t, nodeTimeout, c.nodes())
	old.Freeze(t)
	awaitRole(t, c.Replicas[primary], "master")
	old.Thaw(t)
	awaitRole(t, old, "slave")
	c.setTimeout(t, patience, c.nodes())
}

// FailOverBehind is FailOver of a primary whose replica misses what is written while the function is called. It returns
// when the primary was killed.
func (c *Cluster) FailOverBehind(t testing.TB, primary int, missed func()) (killed time.Time) {
	t.Helper()
	replica := c.Replicas[primary]
	c.setTimeout(t, nodeTimeout, c.nodes())
	replica.Freeze(t)
	c.Primaries[primary].Must(t, "CLIENT", "KILL", "TYPE", "replica") // otherwise the system keeps for it what it is sent
	missed()
	killed = time.Now()
	c.Primaries[primary].Kill()
	replica.Thaw(t)
	c.awaitFailOver(t, primary)
	return killed
}

// Freeze stops the process. It keeps its connections and does not respond.
func (s *Redis) Freeze(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Thaw continues the process after Freeze.
func (s *Redis) Thaw(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Redis) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	noError(t, s.cmd.Process.Signal(sig))
}
