package limiter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestRecordsAreRemovedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		l := testkit.Limiter[uint8](t, srv)
		for i := range 600 {
			testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 5)
		}
		time.Sleep(time.Minute)
		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(150 * time.Second) // the margin of a record is 195 s
		require.Len(t, testkit.Keys(srv), 600)
		srv.Refuse(false)
		requireRemoved(t, srv, 10*time.Second)
	})
}

// requireRemoved lets time pass in a bubble until all windows are over, and fails the test if a
// record is left or has expired.
func requireRemoved(t *testing.T, srv *mockserver.Server, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if left, expired := testkit.Keys(srv), srv.Expired(); len(left) > 0 || expired > 0 {
		t.Fatalf("records were not removed: %q; %d expired on the server", left, expired)
	}
}

// idle returns how long after a hit the records of a key are removed, if the hit is its last and
// servers respond.
func idle[T codec.Value](t testing.TB, scale time.Duration) time.Duration {
	t.Helper()
	b, ok := slot.BandsFor(scale, uint64(^T(0)))
	if !ok {
		t.Fatalf("%v has no bands", scale)
	}
	return time.Duration(b.Top-b.Doom+1)*b.Unit + 10*b.Guard
}
