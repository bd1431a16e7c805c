//go:build unix

package outage_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// An exchange that has no answer because this process was stopped opens no circuit. On a busy machine, the signal can
// come when half of the time is over, so that nothing was late: then the test tries again.
func TestAProcessThatStandsStillIsNoOutage(t *testing.T) {
	store := newRemote()
	exchange := func(timeout time.Duration) (opened, failure error) {
		g := guard(struct{ window.Backend }{store})
		g.Failures = 1
		g.Timeout = timeout
		failure = g.Exchange(t.Context(), []window.Claim{{Key: "a"}}, make([]window.Places, 1))
		return g.Err("", 0), failure
	}
	store.be("a", func(ctx context.Context) error {
		// The real signal: in the time of testing/synctest, nothing is late.
		require.NoError(t, exec.Command("sh", "-c", "kill -STOP $PPID; sleep 1; kill -CONT $PPID").Run())
		return hang(ctx)
	})
	opened, failure := exchange(1200 * time.Millisecond)
	for try := 1; failure != outage.ErrStill && try < 5; try++ {
		opened, failure = exchange(1200 * time.Millisecond)
	}
	require.ErrorIs(t, failure, outage.ErrStill)
	require.NoError(t, opened, "the circuit is closed")
	store.be("a", hang)
	opened, failure = exchange(400 * time.Millisecond)
	for failure == outage.ErrStill { // a busy machine can let the process stand still, too
		opened, failure = exchange(400 * time.Millisecond)
	}
	require.Error(t, opened, "the process has run")
}
