package outage

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// journal keeps lines, which the timers of a Watch may write.
type journal struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.Write(p)
}

// watched returns a Watch, the lines that it has written since the last call of lines, and how long outages lasted.
func watched() (w *Watch, lines func() string, lasted *[]time.Duration) {
	log := &journal{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	lasted = new([]time.Duration)
	w = &Watch{
		Logger: logger, DecidesMeanwhile: "policy", Text: error.Error,
		Observed: func(cause error, after time.Duration) {
			if cause == nil {
				*lasted = append(*lasted, after)
			}
		},
	}
	lines = func() string {
		synctest.Wait()
		log.mu.Lock()
		defer log.mu.Unlock()
		defer log.lines.Reset()
		return log.lines.String()
	}
	return w, lines, lasted
}

var errDown = errors.New("down")

// An outage has its own time. The numbers of its last line are those of the decisions that no other line has reported.
func TestAnOutageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines, lasted := watched()
		for range 2 {
			w.Decided(false, nil) // before the circuit opens, without a cause: no line but that of the outage
			require.Empty(t, lines())
			w.Opened(errDown)
			w.Opened(errDown)
			require.Equal(t, `msg="throttr: the store is away" store="" error=down instead=policy`+"\n", lines())
			time.Sleep(3 * time.Second)
			w.Decided(true, errDown)
			w.Closed()
			time.Sleep(time.Hour)
			require.Empty(t, lines())
			w.Closed()
			require.Equal(t, `msg="throttr: the store is back" store="" after=1h0m3s degraded=2 denied=1 failed=0`+"\n", lines())
			time.Sleep(time.Hour)
			require.Empty(t, lines())
		}
		require.Equal(t, []time.Duration{time.Hour + 3*time.Second, time.Hour + 3*time.Second}, *lasted)
	})
}

// The program is told one thing after the other, and the last one is what is, although a handler is slow, or makes
// calls that change it.
func TestTheLastWordIsWhatIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		w, lines, _ := watched()
		w.Observed = func(cause error, _ time.Duration) {
			if cause != nil {
				time.Sleep(time.Minute)
			}
			told = append(told, cause)
			if len(told) == 2 {
				w.Opened(errDown)
			}
		}
		go w.Opened(errDown)
		time.Sleep(time.Second)
		go w.Closed()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []error{errDown, nil, errDown}, told)
		require.Regexp(t, `(?s)is away.*is back.*after=1s.*is away`, lines())
		go w.Closed()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []error{errDown, nil, errDown, nil}, told)
	})
}

// The first decision without the store has a line at once. Further ones have one a minute, although none follows them,
// or are in that of the outage that follows.
func TestDecisionsWithoutAnOutageAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines, _ := watched()
		line := func(within, numbers string) string {
			return `msg="throttr: decisions without the store" store="" error=down within=` + within + " " + numbers + " instead=policy\n"
		}
		for range 2 {
			w.Decided(false, errDown)
			require.Equal(t, line("0s", "degraded=1 denied=1 failed=0"), lines())
			time.Sleep(30 * time.Second)
			w.Decided(false, errDown)
			w.Decided(true, nil)
			w.Failed(errDown)
			time.Sleep(29 * time.Second)
			require.Empty(t, lines())
			time.Sleep(time.Second)
			require.Equal(t, line("30s", "degraded=2 denied=1 failed=1"), lines())
			w.Decided(true, errDown)
			w.Opened(errDown)
			w.Decided(true, errDown)
			time.Sleep(time.Hour)
			require.NotContains(t, lines(), "decisions")
			w.Closed()
			require.Contains(t, lines(), "after=1h0m0s degraded=2 denied=0 failed=0")
			w.Decided(true, errDown) // a call that the circuit has refused, and that is counted late
			require.Empty(t, lines())
			time.Sleep(time.Minute)
			require.Equal(t, line("1m0s", "degraded=1 denied=0 failed=0"), lines())
			time.Sleep(time.Minute)
			require.Empty(t, lines())
		}
	})
}

// The circuit closes, opens and closes while a call waits to learn whether it may try.
func TestACallThatComesWhileTheCircuitClosesIsLetThrough(t *testing.T) {
	errAway := errors.New("away")
	probe := func() error { return errAway }
	c := NewCircuit(1, time.Hour, func(error) {}, func() {})
	c.open(errAway, probe)
	var ticket Ticket
	entered := make(chan error)
	c.mu.Lock()
	go func() {
		var err error
		ticket, err = c.Enter()
		entered <- err
	}()
	time.Sleep(50 * time.Millisecond) // Enter waits for mu
	c.epoch.Add(1)
	c.closeLocked()
	c.mu.Unlock()
	require.NoError(t, <-entered)
	ticket.Leave(Away, errAway, probe)
	require.Equal(t, errAway, c.Err(), "its failure counts")
}
