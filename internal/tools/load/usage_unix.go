//go:build unix

package load

import (
	"syscall"
	"time"
)

// ProcessCPU returns the user and system time of the process.
func ProcessCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
