package inflight_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// gone is a backend whose store is away.
type gone struct{ window.Backend }

func (gone) Exchange(context.Context, []window.Claim, []window.Places) error {
	return window.ErrUnavailable
}

// A store that can't be told that nothing is held knows after a lease, so the key needs no room any more.
func TestKeysAreForgottenWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inflight.New(gone{memory.New(memory.WithClock(time.Now))}, inflight.WithLogger(nil), inflight.WithMaxKeys(10))
		defer l.Close()
		for i := range 20 {
			_, _, err := l.TryAcquire(t.Context(), fmt.Sprint(i), inflight.Limit{Max: 1, Lease: 20 * time.Millisecond}, 1)
			require.NotErrorIs(t, err, window.ErrFull)
			time.Sleep(60 * time.Millisecond)
		}
		require.LessOrEqual(t, l.Stats().Keys, 1)
	})
}
