//go:build unix

package load

import (
	"syscall"
	"time"
)

// processCPU returns how long the process has run on any processor, in its own code and in
// the system's.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
