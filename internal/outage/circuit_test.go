package outage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

const (
	shortest = 50 * time.Millisecond
	longest  = 400 * time.Millisecond
)

var (
	errAway  = errors.New("away")
	errProbe = errors.New("still away")
)

// fixture is a circuit of a store that answers probes or not.
type fixture struct {
	*outage.Circuit
	answers        atomic.Bool // the store answers probes
	mu             sync.Mutex  // guards probes
	probes         []time.Time
	opened, closed atomic.Int32
}

// inBubble calls test in virtual time, with a circuit that one failure opens.
func inBubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{}
		f.Circuit = outage.NewCircuit(1, longest, func(error) { f.opened.Add(1) }, func() { f.closed.Add(1) })
		test(t, f)
	})
}

func (f *fixture) probe() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probes = append(f.probes, time.Now())
	if f.answers.Load() {
		return nil
	}
	return errProbe
}

// call makes a call that tells something of the store, and reports whether it was let through.
func (f *fixture) call(e outage.Evidence) bool {
	t, err := f.Enter()
	if err != nil {
		return false
	}
	t.Leave(e, errAway, f.probe)
	return true
}

// probed returns when the store was probed.
func (f *fixture) probed() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.probes)
}

// pending is how long the circuit needs at most to notice that the store is back.
const pending = longest * 11 / 10

func TestACircuitIsProbedTriedAndClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.call(outage.Away)
		begun := time.Now()
		for time.Since(begun) < 5*time.Second {
			require.False(t, f.call(outage.Answered), "the store has not answered a probe")
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, errProbe, f.Err(), "what is known last")
		last := begun
		for i, at := range f.probed() {
			want := min(shortest<<i, longest)
			require.InDelta(t, want, at.Sub(last), float64(want/10+1), "pause %d", i)
			last = at
		}
		require.InDelta(t, 5*time.Second/longest, len(f.probed()), 4)

		f.answers.Store(true)
		probed := len(f.probed()) + 1
		time.Sleep(5 * time.Second)
		require.Len(t, f.probed(), probed, "a store that has answered is not probed again")
		trial, err := f.Enter()
		require.NoError(t, err, "one call tries")
		require.False(t, f.call(outage.Answered), "the others are refused")
		time.Sleep(pending)
		require.Len(t, f.probed(), probed, "no probes during a trial")
		trial.Leave(outage.Answered, nil, nil)
		require.NoError(t, f.Err())
		require.Equal(t, []int32{1, 1}, []int32{f.opened.Load(), f.closed.Load()})
		time.Sleep(time.Minute)
		require.Len(t, f.probed(), probed, "no probes of a circuit that is closed")
	})
}

// A failure of a call that was made before the circuit opened says nothing about the store after that.
func TestATrialThatFailsLeavesTheCircuitOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		late, err := f.Enter()
		require.NoError(t, err)
		f.answers.Store(true)
		f.call(outage.Away)
		for range 5 { // it answers what only reads
			require.False(t, f.call(outage.Away))
			time.Sleep(pending)
			require.True(t, f.call(outage.Away))
			require.Error(t, f.Err())
		}
		time.Sleep(pending)
		require.True(t, f.call(outage.Nothing), "a caller that gives up tells nothing")
		require.Error(t, f.Err())
		require.True(t, f.call(outage.Answered), "the next one tries")
		late.Leave(outage.Away, errAway, f.probe)
		require.NoError(t, f.Err())
		require.Equal(t, []int32{1, 1}, []int32{f.opened.Load(), f.closed.Load()})
		f.call(outage.Away)
		require.Error(t, f.Err(), "it opens again")
	})
}

// Without calls the probes become rare, and go on until one is answered. Then the circuit is closed without a trial. A
// call that comes when probes are rare does not wait for one: it is a trial. Then they are frequent.
func TestACircuitThatNobodyCallsIsProbedRarely(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.call(outage.Away)
		time.Sleep(time.Hour)
		probes := f.probed()
		require.InDelta(t, 10*time.Second/longest+6+3600/30, len(probes), 12)
		require.InDelta(t, 30*time.Second, probes[len(probes)-1].Sub(probes[len(probes)-2]), float64(3*time.Second))
		require.True(t, f.call(outage.Away), "the trial")
		require.False(t, f.call(outage.Answered))
		require.Equal(t, errAway, f.Err())
		time.Sleep(time.Second)
		require.Greater(t, len(f.probed()), len(probes)+2)
		require.False(t, f.call(outage.Answered))
		time.Sleep(time.Hour)
		require.True(t, f.call(outage.Answered))
		require.NoError(t, f.Err())
		f.call(outage.Away)
		time.Sleep(time.Hour)
		f.answers.Store(true)
		time.Sleep(33 * time.Second)
		require.NoError(t, f.Err())
		require.Equal(t, []int32{2, 2}, []int32{f.opened.Load(), f.closed.Load()})
		after := len(f.probed())
		time.Sleep(time.Hour)
		require.Len(t, f.probed(), after)
	})
}

// A store that answers and that nobody calls for a while is back, also if the last call told nothing.
func TestAnAnswerIsEnoughIfNobodyCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.answers.Store(true)
		f.call(outage.Away)
		time.Sleep(pending)
		require.True(t, f.call(outage.Nothing))
		time.Sleep(9 * time.Second)
		require.Error(t, f.Err())
		time.Sleep(2 * time.Second)
		require.NoError(t, f.Err())
		require.EqualValues(t, 1, f.closed.Load())
	})
}

// A call that is let through because nobody has called, and tells nothing, is no answer: the store is probed until it
// answers.
func TestATrialThatTellsNothingIsNoAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.call(outage.Away)
		time.Sleep(time.Hour)
		require.True(t, f.call(outage.Nothing), "probes are rare")
		probed := len(f.probed())
		require.False(t, f.call(outage.Answered))
		time.Sleep(time.Second)
		require.Greater(t, len(f.probed()), probed+2, "soon, as somebody calls")
		time.Sleep(time.Hour)
		require.Equal(t, errProbe, f.Err())
		require.Zero(t, f.closed.Load())
	})
}

// After the end of the backend, only calls can find out more.
func TestAClosedBackendIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		c := outage.NewCircuit(1, 400*time.Millisecond, func(error) {}, func() { t.Error("closed") })
		ticket, err := c.Enter()
		require.NoError(t, err)
		ticket.Leave(outage.Away, errAway, func() error { probes.Add(1); return window.ErrClosed })
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, probes.Load())
		_, err = c.Enter()
		require.NoError(t, err, "a call finds out that it is closed")
	})
}

const forever = time.Duration(1<<63 - 1)

// requireNear fails the test unless a pause is want, give or take a tenth.
func requireNear(t *testing.T, want, pause time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, pause, want-want/10)
	require.LessOrEqual(t, pause, want+want/10)
}

func TestPausesDoubleUpToTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := outage.NewBackoff(100*time.Millisecond, time.Second)
		for range 2 {
			for _, want := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000} {
				start := time.Now()
				require.NoError(t, b.Wait(t.Context(), nil))
				requireNear(t, want*time.Millisecond, time.Since(start))
			}
			b.Reset()
		}
	})
}

func TestPausesHaveJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[outage.NewBackoff(time.Second, time.Second).Next()] = true
	}
	require.Greater(t, len(seen), 50)
}

func TestExtremePausesDoNotOverflow(t *testing.T) {
	for _, c := range []struct{ min, max, first, last time.Duration }{
		{time.Hour, time.Second, time.Second, time.Second},
		{forever, time.Second, time.Second, time.Second},
		{time.Second, forever, time.Second, forever / 2},
		{forever, forever, forever / 2, forever / 2},
		{1, 1, 1, 1},
		{1, forever, 1, forever / 2},
	} {
		b := outage.NewBackoff(c.min, c.max)
		requireNear(t, c.first, b.Next())
		for range 100 {
			require.GreaterOrEqual(t, b.Next(), time.Duration(0))
		}
		requireNear(t, c.last, b.Next())
	}
}

// An attempt that finds nobody there costs next to nothing.
func TestPausesDoNotGrowWhileNobodyListens(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "socket")
	_, err := net.Dial("unix", missing)
	for _, nobody := range []error{err, fmt.Errorf("dialing: %w", syscall.ECONNREFUSED)} {
		synctest.Test(t, func(t *testing.T) {
			b := outage.NewBackoff(80*time.Millisecond, time.Minute)
			seen := map[time.Duration]bool{}
			for range 100 {
				start := time.Now()
				require.NoError(t, b.Wait(t.Context(), nobody))
				pause := time.Since(start)
				require.GreaterOrEqual(t, pause, 40*time.Millisecond)
				require.LessOrEqual(t, pause, 80*time.Millisecond)
				seen[pause] = true
			}
			require.Greater(t, len(seen), 50, "they have jitter")
			require.NoError(t, b.Wait(t.Context(), io.EOF))
			requireNear(t, 160*time.Millisecond, b.Next())
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, outage.NewBackoff(time.Hour, time.Hour).Wait(ctx, nil), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, outage.SleepUntil(t.Context(), start, nil), "a time that is over")
		require.ErrorIs(t, outage.SleepUntil(ctx, start, nil), context.DeadlineExceeded)
		woken := make(chan struct{})
		close(woken)
		for range 50 {
			require.ErrorIs(t, outage.SleepUntil(ctx, time.Time{}, woken), context.DeadlineExceeded)
		}
	})
}
