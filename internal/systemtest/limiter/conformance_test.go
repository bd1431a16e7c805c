package limiter_test

import (
	"slices"
	"testing"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestServerBackendConforms(t *testing.T) {
	ofEachSize(t, testConformance[uint8], testConformance[uint16], testConformance[uint32], testConformance[uint64])
}

// ofEachSize runs a test for each value size, or for two unless tests are thorough: the smallest, in which counts are
// bounded by the server, and another one.
func ofEachSize(t *testing.T, uint8, uint16, uint32, uint64 func(*testing.T)) {
	t.Run("uint8", uint8)
	t.Run("uint16", uint16)
	if testkit.Thorough() {
		t.Run("uint32", uint32)
		t.Run("uint64", uint64)
	}
}

func testConformance[T codec.Value](t *testing.T) {
	backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
		_, client := testkit.Start[T](t, throttr.Config{})
		return subjectOf(client.Backend())
	})
}

// TestTwoClientsOfServersConform has a second client of the same two servers, which names them in another order. Neither
// remembers denials, so that each finds at once what the other one has left.
func TestTwoClientsOfServersConform(t *testing.T) {
	if !testkit.Thorough() {
		t.Run("uint8", testTwoClients[uint8])
		return
	}
	ofEachSize(t, testTwoClients[uint8], testTwoClients[uint16], testTwoClients[uint32], testTwoClients[uint64])
}

func testTwoClients[T codec.Value](t *testing.T) {
	backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
		cfg := testkit.Several(t, 2, mockserver.WithValueSize(codec.Size[T]())).Over(throttr.Config{})
		s := subjectOf(testkit.Client[T](t, cfg).Backend(throttr.WithDenialMemory(-1)))
		cfg.Servers = slices.Clone(cfg.Servers)
		slices.Reverse(cfg.Servers)
		s.Second = testkit.Client[T](t, cfg).Backend(throttr.WithDenialMemory(-1))
		return s
	})
}

// subjectOf returns a backend of a client in a bubble.
func subjectOf(b *throttr.ServerBackend) backendtest.Subject {
	return backendtest.Subject{
		Backend: b, Clock: backendtest.BubbleClock{}, SkipsDenied: true, MayLose: true,
		Without: map[string]string{
			"Exchange":   "a grant would take several exchanges, and there is no line",
			"ListPlaces": "there are none",
		},
	}
}
