//go:build unix

package redistest

import (
	"syscall"
	"testing"
)

// CutOff stops the process of a primary, whose connections stay open, and lets it go on when its
// replica has taken over. It returns when the old primary follows the new one.
func (c *Cluster) CutOff(t testing.TB, primary int) {
	t.Helper()
	old := c.Primaries[primary]
	c.setTimeout(t, nodeTimeout, c.nodes())
	signal(t, old, syscall.SIGSTOP)
	awaitRole(t, c.Replicas[primary], "master")
	signal(t, old, syscall.SIGCONT)
	awaitRole(t, old, "slave")
	c.setTimeout(t, patience, c.nodes())
}

func signal(t testing.TB, s *Server, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
