//go:build !unix

package load

import "time"

// ProcessCPU returns 0: this system does not report it.
func ProcessCPU() time.Duration { return 0 }
