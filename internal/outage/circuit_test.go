package outage_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
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
