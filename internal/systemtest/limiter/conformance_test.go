package limiter_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

//evidence:limits The conformance suite passes on servers of every value size, with all algorithms that servers keep
func TestServerBackendConforms(t *testing.T) {
	t.Run("uint8", testConformance[uint8])
	t.Run("uint16", testConformance[uint16])
	t.Run("uint32", testConformance[uint32])
	t.Run("uint64", testConformance[uint64])
}

func testConformance[T codec.Value](t *testing.T) {
	for _, algorithm := range []window.Algorithm{window.PerKey, window.Aligned, window.Sliding} {
		t.Run(algorithm.String(), func(t *testing.T) {
			backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
				return serverBackend[T](t, algorithm)
			})
		})
	}
}

func TestServerBackendWithOptionsConforms(t *testing.T) {
	for name, opt := range map[string]throttr.BackendOption{
		"no coalescing":    throttr.WithoutCoalescing(),
		"no denial memory": throttr.WithDenialMemory(-1),
	} {
		for _, algorithm := range []window.Algorithm{window.PerKey, window.Sliding} {
			t.Run(name+"/"+algorithm.String(), func(t *testing.T) {
				backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
					return serverBackend[uint32](t, algorithm, opt)
				})
			})
		}
	}
}

// serverBackend returns a backend on a mock server, in a bubble.
func serverBackend[T codec.Value](t *testing.T, algorithm window.Algorithm, opts ...throttr.BackendOption) backendtest.Subject {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
	client := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{}))
	s := backendtest.Subject{
		Backend: client.Backend(append(opts, throttr.WithAlgorithm(algorithm))...), Clock: backendtest.BubbleClock{},
		Algorithm: algorithm, SkipsDenied: true, MayLose: true, MaxCount: uint64(^T(0)), RefusesInc: true,
	}
	size := codec.Size[T]()
	if size == 1 {
		s.MinScale = time.Second
	}
	if algorithm == window.PerKey { // ends of windows are known to a unit of the TTL
		s.Exact = map[int]time.Duration{1: time.Second, 2: time.Millisecond}[size]
	}
	return s
}
