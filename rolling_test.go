package throttr_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// What counts without a Max is unsupported.
func TestRollingCallsNeedAMax(t *testing.T) {
	for _, a := range []throttr.Algorithm{throttr.TokenBucket, throttr.SlidingWindow, throttr.SlidingLog} {
		limiter := throttr.NewRateLimit(inProcess(t), throttr.WithAlgorithm(a))
		for call, err := range everyCallOfAScale(t.Context(), limiter, time.Minute) {
			if call == "Hit" || call == "Reset" {
				require.NoError(t, err, call)
				continue
			}
			require.ErrorIs(t, err, throttr.ErrUnsupported, call)
		}
	}
}
