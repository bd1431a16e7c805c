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

// An exchange that has no answer because this process was stopped opens no circuit.
func TestAProcessThatStandsStillIsNoOutage(t *testing.T) {
	store := &remote{}
	g := guard(struct{ window.Backend }{store})
	g.Failures = 1
	exchange := func(timeout time.Duration) error {
		g.Timeout = timeout
		return g.Exchange(t.Context(), []window.Claim{{Key: "a"}}, make([]window.Places, 1))
	}
	store.be("a", func(ctx context.Context) error {
		// The real signal: in the time of testing/synctest, nothing is late.
		require.NoError(t, exec.Command("sh", "-c", "kill -STOP $PPID; sleep 1; kill -CONT $PPID").Run())
		return hang(ctx)
	})
	require.ErrorIs(t, exchange(1200*time.Millisecond), outage.ErrStill)
	require.NoError(t, g.Err("", 0), "the circuit is closed")
	store.be("a", hang)
	for exchange(400*time.Millisecond) == outage.ErrStill { // a busy machine can let the process stand still, too
	}
	require.Error(t, g.Err("", 0), "the process has run")
}
