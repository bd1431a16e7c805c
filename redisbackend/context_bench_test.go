//go:build unix

package redisbackend_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// withoutDeadline is a context that can end but has no deadline. The client honors the end of
// such a context while it waits for a response.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// BenchmarkContext answers what a context that can end costs: in the client alone, which honors
// it in part, and in the backend, which starts a goroutine. The command, HDEL, is the same. The
// metric cpu-ns/op is the CPU time of this process, without that of the server.
func BenchmarkContext(b *testing.B) {
	s := startServer(b)
	for _, parallel := range []bool{false, true} {
		name := "serial"
		if parallel {
			name = "parallel"
		}
		for _, c := range []struct {
			name            string
			backend, canEnd bool
		}{
			{"client, never ends", false, false}, {"client, can end", false, true},
			{"backend, never ends", true, false}, {"backend, can end", true, true},
		} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				ctx := context.Background()
				if c.canEnd {
					ctx = withoutDeadline{b.Context()}
				}
				// A client that has once served concurrent calls stays slower for serial
				// ones, so each benchmark has a client of its own.
				client := s.connect()
				backend := redisbackend.New(client)
				call := func() {
					var err error
					if c.backend {
						err = backend.Reset(ctx, "k", limitOf(window.FixedWindow, time.Minute, 10))
					} else {
						err = client.Do(ctx, client.B().Hdel().Key("throttr:{k:k}:v1").Field("60000000").Build()).Error()
					}
					if err != nil {
						b.Error(err)
					}
				}
				call()
				b.ReportAllocs()
				before := cpuTime(b)
				if parallel {
					b.SetParallelism(32)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							call()
						}
					})
				} else {
					for b.Loop() {
						call()
					}
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
