package breaker_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/breaker"
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
	*breaker.Circuit
	answers        atomic.Bool // the store answers probes
	mu             sync.Mutex  // guards probes
	probes         []time.Time
	opened, closed int
}

func newFixture(failures int) *fixture {
	f := &fixture{}
	f.Circuit = breaker.NewCircuit(failures, shortest, longest, func(error) { f.opened++ }, func() { f.closed++ })
	return f
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

// call makes a call with an outcome, and reports whether it was let through.
func (f *fixture) call(o breaker.Outcome) bool {
	t, err := f.Enter()
	if err != nil {
		return false
	}
	t.Leave(o, errAway, f.probe)
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

func TestACircuitOpensAfterFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(3)
		for _, o := range []breaker.Outcome{breaker.Away, breaker.Away, breaker.Answered, breaker.Away, breaker.Nothing, breaker.Away} {
			require.True(t, f.call(o))
			require.NoError(t, f.Err())
		}
		require.True(t, f.call(breaker.Away))
		require.Equal(t, errAway, f.Err())
		require.False(t, f.call(breaker.Answered))
		require.Equal(t, 1, f.opened)
	})
}

func TestACircuitIsProbedTriedAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(1)
		f.call(breaker.Away)
		begun := time.Now()
		for time.Since(begun) < 5*time.Second {
			require.False(t, f.call(breaker.Answered), "the store has not answered a probe")
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
		time.Sleep(pending)
		trial, err := f.Enter()
		require.NoError(t, err, "one call tries")
		require.False(t, f.call(breaker.Answered), "the others are refused")
		probed := len(f.probed())
		time.Sleep(pending)
		require.Len(t, f.probed(), probed, "no probes during a trial")
		trial.Leave(breaker.Answered, nil, nil)
		require.NoError(t, f.Err())
		require.Equal(t, []int{1, 1}, []int{f.opened, f.closed})
		time.Sleep(time.Minute)
		require.Len(t, f.probed(), probed, "no probes of a circuit that is closed")
	})
}

func TestATrialThatFailsLeavesTheCircuitOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(1)
		f.answers.Store(true)
		f.call(breaker.Away)
		for range 5 { // it answers what only reads
			require.False(t, f.call(breaker.Away))
			time.Sleep(pending)
			require.True(t, f.call(breaker.Away))
			require.Error(t, f.Err())
		}
		time.Sleep(pending)
		require.True(t, f.call(breaker.Nothing), "a caller that gives up tells nothing")
		require.Error(t, f.Err())
		require.True(t, f.call(breaker.Answered), "the next one tries")
		require.NoError(t, f.Err())
		require.Equal(t, []int{1, 1}, []int{f.opened, f.closed})
	})
}

func TestAStoreThatHasAnsweredIsNotProbedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(1)
		f.answers.Store(true)
		f.call(breaker.Away)
		time.Sleep(5 * time.Second)
		require.Len(t, f.probed(), 1)
		require.True(t, f.call(breaker.Answered), "the trial")
		require.NoError(t, f.Err())
	})
}

// Calls that were made before the circuit opened say nothing about the store after that.
func TestLateFailuresDoNotOpenACircuitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(1)
		late, err := f.Enter()
		require.NoError(t, err)
		f.answers.Store(true)
		f.call(breaker.Away)
		time.Sleep(pending)
		require.True(t, f.call(breaker.Answered))
		late.Leave(breaker.Away, errAway, f.probe)
		require.NoError(t, f.Err())
		f.call(breaker.Away)
		require.Error(t, f.Err())
	})
}

// Without calls the probing ends, and the next call does not need a probe.
func TestTheProbingEndsWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(1)
		f.call(breaker.Away)
		require.False(t, f.call(breaker.Answered))
		time.Sleep(time.Minute)
		probed := len(f.probed())
		require.InDelta(t, 10*time.Second/longest, probed, 4)
		require.True(t, f.call(breaker.Away), "the trial")
		require.False(t, f.call(breaker.Answered))
		time.Sleep(pending)
		require.Greater(t, len(f.probed()), probed, "and the probing goes on")
		time.Sleep(time.Minute)
		require.True(t, f.call(breaker.Answered))
		require.NoError(t, f.Err())
	})
}
