package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	windows "github.com/throttr-go/throttr/window"
)

func TestServersConform(t *testing.T) {
	t.Run("uint8", testConformance[uint8])
	t.Run("uint16", testConformance[uint16])
	t.Run("uint32", testConformance[uint32])
	t.Run("uint64", testConformance[uint64])
}

func testConformance[T codec.Value](t *testing.T) {
	for _, algorithm := range []windows.Algorithm{windows.PerKey, windows.Aligned} {
		t.Run(algorithm.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				return serverSubject[T](t, algorithm)
			})
		})
	}
}

// serverSubject is a backend on a mock server, whose clock is that of the client.
func serverSubject[T codec.Value](t *testing.T, algorithm windows.Algorithm, opts ...throttr.BackendOption) backendtest.Subject {
	srv := mockserver.RunT(t, mockserver.WithVirtualClock(), mockserver.WithValueSize(codec.Size[T]()))
	client := testkit.Connect[T](t, srv, testkit.ParkedIfSmall[T](throttr.Config{}))
	opts = append(opts, throttr.WithClock(srv.Now), throttr.WithAlgorithm(algorithm))
	s := backendtest.Subject{
		Backend: client.Backend(opts...), Clock: srv, Algorithm: algorithm, SkipsDenied: true,
		MaxCount: uint64(^T(0)) - 64,
	}
	switch codec.Size[T]() { // an end is told to the unit of the TTL
	case 1:
		s.Exact = time.Second
	case 2:
		s.Exact = time.Millisecond
	}
	return s
}

func TestServersConformWithoutCoalescingAndWithoutMemoryOfDenials(t *testing.T) {
	for i, opts := range [][]throttr.BackendOption{
		{throttr.WithoutCoalescing()},
		{throttr.WithDenialMemory(-1)},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				return serverSubject[uint32](t, windows.PerKey, opts...)
			})
		})
	}
}
