package load

import (
	"runtime"
	"time"
)

// usage is what the process has used since it started.
type usage struct {
	at            time.Time
	cpu           time.Duration
	allocs, bytes uint64
}

func usageNow() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{at: time.Now(), cpu: ProcessCPU(), allocs: m.Mallocs, bytes: m.TotalAlloc}
}
