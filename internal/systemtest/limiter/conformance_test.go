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

//evidence:limits The conformance suite passes on servers of every value size, with both algorithms
func TestServerBackendConforms(t *testing.T) {
	t.Run("uint8", testConformance[uint8])
	t.Run("uint16", testConformance[uint16])
	t.Run("uint32", testConformance[uint32])
	t.Run("uint64", testConformance[uint64])
}

func testConformance[T codec.Value](t *testing.T) {
	for _, algorithm := range []window.Algorithm{window.PerKey, window.Aligned} {
		t.Run(algorithm.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
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
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				return serverBackend[uint32](t, window.PerKey, opt)
			})
		})
	}
}

// serverBackend returns a backend on a mock server. Both have the same virtual clock. The server is
// parked: on any other one, Close would wait for the ends of windows by the real clock.
func serverBackend[T codec.Value](t *testing.T, algorithm window.Algorithm, opts ...throttr.BackendOption) backendtest.Subject {
	srv := mockserver.RunT(t, mockserver.WithVirtualClock(), mockserver.WithValueSize(codec.Size[T]()))
	client := testkit.Connect[T](t, srv, throttr.Config{Parking: throttr.ParkingAlways})
	opts = append(opts, throttr.WithClock(srv.Now), throttr.WithAlgorithm(algorithm))
	s := backendtest.Subject{
		Backend: client.Backend(opts...), Clock: srv, Algorithm: algorithm, SkipsDenied: true,
		MaxCount: uint64(^T(0)) - 64,
	}
	switch codec.Size[T]() { // ends of windows are known to a unit of the TTL
	case 1:
		s.Exact = time.Second
	case 2:
		s.Exact = time.Millisecond
	}
	return s
}
