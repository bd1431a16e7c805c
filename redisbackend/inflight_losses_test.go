//go:build unix

package redisbackend_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
)

// 50 holders in 5 processes want 40 places, each for a second, while Redis loses its data.
const (
	lossProcesses = 5
	lossHolders   = 10 // of each
	lossHeld      = time.Second
)

var lossLimit = inflight.Limit{Name: "loss", Max: 40, Lease: 2 * time.Second}

// losses are what happens to Redis. Each returns when the data was lost.
var losses = map[string]struct {
	args  []string
	fails func(t *testing.T, s *testkit.Redis) time.Time
	kept  bool // all data
}{
	"fresh": {kept: true},
	"FLUSHALL": {fails: func(t *testing.T, s *testkit.Redis) time.Time {
		s.Must(t, "FLUSHALL")
		return time.Now()
	}},
	"restart without persistence":     {fails: restart},
	"restart with appendfsync always": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, restart, true},
}

func restart(t *testing.T, s *testkit.Redis) time.Time {
	s.Kill()
	lost := time.Now()
	s.Restart(t)
	return lost
}

// measured is what processes have seen of a loss.
type measured struct {
	refused time.Duration // from the loss to the next grant
	over    int           // places more than Max
	overFor time.Duration
}

func (m measured) String() string {
	return fmt.Sprintf("refused for %v, over by %d for %v", m.refused.Round(time.Millisecond), m.over, m.overFor.Round(time.Millisecond))
}

// measure has processes hold places around a loss, and for two leases after it.
func measure(t *testing.T, addrs []string, strict bool, warm time.Duration, fails func() time.Time) (m measured) {
	o := orders{addrs, t.TempDir(), strict, lossHolders, lossHeld, lossLimit}
	begun := time.Now()
	for range lossProcesses {
		cmd := o.start(t)
		defer func() {
			cmd.Process.Kill()
			cmd.Wait()
		}()
	}
	time.Sleep(warm)
	if fails != nil {
		begun = fails()
	}
	time.Sleep(3 * lossLimit.Lease)
	all := readHeld(t, o.Dir)
	most, overFor := overHeld(all, int(lossLimit.Max))
	m = measured{refused: -1, over: max(0, most-int(lossLimit.Max)), overFor: overFor}
	for _, h := range all {
		if after := time.Duration(h.begin - begun.UnixNano()); after > 0 && (m.refused < 0 || after < m.refused) {
			m.refused = after
		}
	}
	expect(t, m.refused >= 0, "nothing is granted any more")
	return m
}

// require fails the test if a loss has cost more than documents say.
func (m measured) require(t *testing.T, strict, kept bool) {
	t.Helper()
	switch {
	case strict || kept:
		expect(t, m.over == 0, "over by %d", m.over)
	default:
		expect(t, m.over <= int(lossLimit.Max), "over by %d, more than were forgotten", m.over)
	}
	if strict {
		expect(t, m.refused <= 2*lossLimit.Lease, "refused for %v", m.refused)
	}
}

// TestPlacesInFlightAfterALoss measures by how much and for how long places are over their Max after each loss of data.
// It runs a flush, and all with THROTTR_SLOW_TESTS=1.
//
//evidence:redis After a loss of data, places in flight are over by no more than was forgotten, and with WithStrict never
func TestPlacesInFlightAfterALoss(t *testing.T) {
	for name, loss := range losses {
		if name != "FLUSHALL" && os.Getenv("THROTTR_SLOW_TESTS") == "" {
			continue
		}
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, strict %v", name, strict), func(t *testing.T) {
				s := testkit.StartRedisOnSocket(t, loss.args...)
				warm := lossLimit.Lease + 2*time.Second
				var fails func() time.Time
				if loss.fails != nil {
					fails = func() time.Time { return loss.fails(t, s) }
				} else {
					warm = 0
				}
				m := measure(t, []string{s.Addr}, strict, warm, fails)
				t.Log(m)
				m.require(t, strict, loss.kept)
			})
		}
	}
}

// The same after a failover to a replica that knows nothing of the places that are held.
func TestPlacesInFlightAfterAFailover(t *testing.T) {
	if os.Getenv("THROTTR_SLOW_TESTS") == "" {
		t.Skip("takes a minute: with THROTTR_SLOW_TESTS=1")
	}
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %v", strict), func(t *testing.T) {
			c := testkit.StartCluster(t, 3)
			owner := ownerOf(t, c)
			primary, replica := c.Primaries[owner], c.Replicas[owner]
			m := measure(t, c.Addrs(), strict, lossLimit.Lease+4*time.Second, func() time.Time {
				replica.Freeze(t)
				primary.Must(t, "CLIENT", "KILL", "TYPE", "replica")
				time.Sleep(lossHeld * 3 / 2) // it does not know what is held now
				primary.Kill()
				lost := time.Now()
				replica.Thaw(t)
				replica.Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
				return lost
			})
			t.Log(m)
			m.require(t, strict, false)
		})
	}
}
