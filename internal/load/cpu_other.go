//go:build !unix

package load

import "time"

// processCPU returns 0: the system does not tell.
func processCPU() time.Duration { return 0 }
