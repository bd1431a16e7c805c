package fixedwindow

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// The server is too slow to look up all keys within a guard.
func TestRecordsOfManyKeysAreRemovedFromSlowServers(t *testing.T) {
	const keys = 300
	for _, scale := range []time.Duration{time.Second, 10 * time.Second} {
		for _, closes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, close %v", scale, closes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := inMemory(t, mockserver.WithServiceTime(time.Millisecond))
					b := New(options[uint16](t, srv))
					for i := range keys {
						hits(t, b, 1, fmt.Sprint(i), scale, 1)
					}
					if closes {
						time.Sleep(scale)
						require.Less(t, closing(b), closeWait+closeTimeout)
						require.Zero(t, len(windowKeys(srv)))
					} else {
						time.Sleep(2 * time.Minute)
						require.Zero(t, len(windowKeys(srv)))
						b.Close()
					}
					require.Zero(t, srv.Expired())
				})
			})
		}
	}
}
