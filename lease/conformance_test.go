package lease_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
)

// A key that is not hot behaves as in the backend, except that denied hits are refused and count
// nothing. The blocks of hot keys are tested by the other tests: Count is a place,
// Get shows the places of blocks, and a hit can be denied although places are left.
func TestConformance(t *testing.T) {
	backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
		store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(24*time.Hour)) // the suite lets years pass
		cold := lease.WithKeys(func(string) bool { return false })
		leases, second := lease.New(store, lease.WithAge(time.Hour), cold), lease.New(store, lease.WithAge(time.Hour), cold)
		closeAll := func() {
			leases.Close()
			second.Close()
			store.Close()
		}
		t.Cleanup(closeAll)
		return backendtest.Subject{Backend: leases, Second: second, Clock: backendtest.BubbleClock{}, SkipsDenied: true,
			Close: closeAll}
	})
}
