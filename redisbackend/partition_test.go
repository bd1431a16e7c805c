//go:build unix

package redisbackend_test

import (
	"testing"

	"github.com/throttr-go/throttr/internal/testkit"
)

// The old primary goes on when its replica has taken over. It then executes the requests that it
// had received, and loses them.
//
//evidence:redis A primary of a cluster that is cut off and comes back allows few hits more than the limits
func TestPrimaryThatComesBackAllowsFewHitsMore(t *testing.T) {
	c := testkit.StartCluster(t, 3)
	fail := func() { c.CutOff(t, 0) }
	testkit.RequireFewMore(t, testkit.FloodFailover(t, fail, backendsOn(t, c)...))
}
