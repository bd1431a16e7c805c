//go:build !unix

package load

import "time"

// processCPU returns 0: this system does not report it.
func processCPU() time.Duration { return 0 }
