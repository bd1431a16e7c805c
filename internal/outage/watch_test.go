package outage

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var lasted []time.Duration
		logger := slog.New(slog.NewTextHandler(&log, nil))
		w := &Watch{
			Logger:  func() *slog.Logger { return logger },
			Instead: "the policy",
			Text:    error.Error,
			Observed: func(cause error, after time.Duration) {
				if cause == nil {
					lasted = append(lasted, after)
				}
			},
		}
		for range 2 { // an outage has its own time and counts
			w.Opened(errors.New("down"))
			time.Sleep(3 * time.Second)
			w.Decided(false, nil)
			w.Decided(true, nil)
			time.Sleep(time.Second)
			w.Closed()
			require.Contains(t, log.String(), `msg="throttr: the store is back" store="" after=4s degraded=2 denied=1`)
			log.Reset()
			time.Sleep(time.Hour)
		}
		require.Equal(t, []time.Duration{4 * time.Second, 4 * time.Second}, lasted)

		// Failures just before the circuit opens belong to the outage, and those of earlier do not.
		for pause, want := range map[time.Duration]string{time.Second: "after=3s degraded=2", time.Second + 1: "after=2s degraded=1"} {
			w.Decided(true, errors.New("down"))
			time.Sleep(pause)
			w.Opened(errors.New("down"))
			w.Decided(true, nil)
			time.Sleep(2 * time.Second)
			w.Closed()
			require.Contains(t, log.String(), want)
			log.Reset()
		}

		for range 3 { // without a cause, there is no line
			w.Decided(true, nil)
			time.Sleep(sporadicPeriod)
		}
		require.Empty(t, log.String())
		w.Decided(true, errors.New("down"))
		require.Contains(t, log.String(), `msg="throttr: decisions without the store" store="" error=down within=3m0s degraded=4 denied=0`)
	})
}
