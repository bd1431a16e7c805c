package transport_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// Programs are restarted one after the other, so that for a while some know of three servers
// and some of four. A quarter of the keys moves. Until all programs are restarted, both groups
// allow such a key its whole limit. Other keys are not affected.
func TestKeyThatMovesToAnAddedServerHasTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, limit = 1000, 5
		servers := testkit.Several(t, 4)
		before := testkit.NewRateLimit(testkit.Client[uint16](t, servers[:3].Over(throttr.Config{})).Backend())
		after := testkit.NewRateLimit(testkit.Client[uint16](t, servers.Over(throttr.Config{})).Backend())
		moved := 0
		for i := range keys {
			key := fmt.Sprintf("user:%d", i)
			allowed := testkit.Hits(t, before, 2*limit, key, time.Minute, limit)
			allowed += testkit.Hits(t, after, 2*limit, key, time.Minute, limit)
			switch allowed {
			case limit:
			case 2 * limit:
				moved++
			default:
				t.Errorf("%s: %d hits were allowed", key, allowed)
			}
		}
		t.Logf("%d of %d keys move", moved, keys)
		require.InDelta(t, keys/4, moved, keys/20)

		time.Sleep(time.Minute)
		for i := range keys { // when all programs know of the fourth server
			key := fmt.Sprintf("user:%d", i)
			require.Equal(t, limit, testkit.Hits(t, after, 2*limit, key, time.Minute, limit), key)
		}
	})
}
