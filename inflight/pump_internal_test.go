package inflight

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// leased returns a pump for places with a lease.
func leased(lease time.Duration, o options, changed func(*Hold)) *pump {
	p := &pump{callers: callers{options: &o, changed: changed, holds: map[*Hold]struct{}{}}}
	p.open("k", "", lease)
	return p
}

// adds adds a want to a pump.
func (p *pump) adds(n, most uint64, wait bool) *Hold {
	w := &Hold{want: window.Want{N: n, Max: most, Wait: wait}}
	p.add(w)
	return w
}

// exchange makes an exchange within a millisecond, and returns the claim. The process does something meanwhile.
func (p *pump) exchange(now time.Duration, a window.Places, meanwhile ...func()) *window.Claim {
	c := p.begin(now, 1)
	for _, f := range meanwhile {
		f()
	}
	p.answered(now+time.Millisecond, &a)
	return c
}

// An answer that arrives after the time of what was held is over does not bring it back, although the store has
// renewed it: the holder may have seen that it is not valid. One that arrives a lease late grants nothing. What a strict
// store has no room for is lost.
func TestWhatIsLostStaysLost(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	w := p.adds(1, 1, false)
	p.exchange(0, window.Places{Tokens: []uint64{7}, Used: 1})
	require.Equal(t, held, w.state)
	end := p.loseAt()
	require.Less(t, end, time.Second)

	p.begin(900*time.Millisecond, 1)
	p.answered(end, &window.Places{Used: 1})
	require.Equal(t, lost, w.state)
	require.Zero(t, p.due(), "the store is told")
	late := p.adds(1, 1, false)
	require.Zero(t, p.begin(end, 1).Held)
	p.answered(end+time.Second, &window.Places{Tokens: []uint64{8}, Used: 1})
	require.Equal(t, refused, late.state)

	for _, end := range []func(){
		func() { p.answered(time.Second/2+1, &window.Places{Lost: true}) },
		func() { p.failed(time.Second, errLate, failing) }, // a policy keeps only what is held
	} {
		p = leased(time.Second, options{policy: Share}, func(*Hold) {})
		w = p.adds(1, 1, false)
		p.exchange(0, window.Places{Tokens: []uint64{7}, Used: 1})
		p.begin(time.Second/2, 1)
		end()
		require.Equal(t, lost, w.state)
	}
}

// Whoever waits behind others needs no exchange.
func TestWantsBehindOneThatWaitsAskNobody(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	first := p.adds(1, 1, true)
	p.exchange(0, window.Places{Used: 1, Waiting: 1})
	require.Equal(t, time.Millisecond+time.Second/8, p.due(), "it asks again")
	p.adds(1, 1, true)
	require.Equal(t, refused, p.adds(1, 1, false).state)
	require.Equal(t, time.Millisecond+time.Second/8, p.due())
	p.cancel(first)
	require.Zero(t, p.due(), "the store keeps room for the first in line")
	var late *Hold
	p.exchange(0, window.Places{Used: 1, Waiting: 1}, func() { late = p.adds(1, 1, false) })
	require.Equal(t, refused, late.state, "the other one is in line now")
}

// A want that is given up during its exchange does not keep others from asking. The store is told that it keeps a
// position in line, or a place, for nobody.
func TestAWantThatIsGivenUpDuringItsExchangeBlocksNobody(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	first := p.adds(2, 2, true)
	var second *Hold
	p.exchange(0, window.Places{Used: 1, Waiting: 1}, func() {
		p.cancel(first)
		second = p.adds(1, 2, false)
	})
	require.Equal(t, waiting, second.state)
	require.Zero(t, p.due())
	require.Equal(t, []window.Want{{N: 1, Max: 2}}, p.exchange(time.Millisecond, window.Places{Tokens: []uint64{7}, Used: 2}).Wants)
	require.Equal(t, held, second.state)

	for _, answer := range []window.Places{{Used: 1, Waiting: 1}, {Tokens: []uint64{7}, Used: 1}} {
		p = leased(time.Second, options{}, func(*Hold) {})
		w := p.adds(1, 1, true)
		p.exchange(0, answer, func() { p.cancel(w) })
		require.Equal(t, released, w.state)
		require.False(t, p.idle(time.Millisecond))
		require.Zero(t, p.due(), "at once, and not after a lease")
		require.Equal(t, &window.Claim{Key: "k", Seq: 1, Lease: time.Second, Wants: []window.Want{}}, p.begin(time.Millisecond, 1))
	}

	p = leased(time.Second, options{}, func(*Hold) {})
	one, _ := p.adds(1, 2, false), p.adds(1, 2, false)
	p.exchange(0, window.Places{Tokens: []uint64{7, 8}, Used: 2})
	p.exchange(time.Millisecond, window.Places{Used: 2}, func() { p.cancel(one) })
	require.Zero(t, p.due(), "what is released during an exchange is free at once, although more is held")
}

// Those who have gone are not kept in memory by a pump that goes on, with the values of their ctx.
func TestAPumpKeepsNobodyWhoHasGone(t *testing.T) {
	for name, end := range map[string]func(p *pump){
		"answered": func(p *pump) { p.answered(time.Millisecond, &window.Places{Used: 1, Waiting: 1}) },
		"failed":   func(p *pump) { p.failed(time.Millisecond, errLate, failing) },
	} {
		p := leased(time.Second, options{}, func(*Hold) {})
		var gone []weak.Pointer[Hold]
		for range 9 {
			gone = append(gone, weak.Make(p.adds(1, 1, true)))
		}
		p.begin(0, 1)
		end(p)
		for _, w := range gone {
			p.cancel(w.Value())
		}
		runtime.GC()
		for _, w := range gone {
			require.Nil(t, w.Value(), name)
		}
		runtime.KeepAlive(p)
	}
}

// The store is told the largest Max under which places are held, so that it can tell whether they fit when it has
// forgotten them.
func TestTheStoreIsToldTheLargestMax(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	for i, most := range []uint64{3, 5, 4} {
		p.adds(1, most, false)
		p.exchange(0, window.Places{Tokens: []uint64{uint64(i + 1)}, Used: uint64(i + 1)})
	}
	c := p.begin(2*time.Millisecond, 1)
	require.EqualValues(t, 3, c.Held)
	require.EqualValues(t, 5, c.HeldMax)
	for h := range p.holds {
		p.cancel(h)
	}
	p.answered(3*time.Millisecond, &window.Places{})
	require.Zero(t, p.begin(4*time.Millisecond, 1).HeldMax)
}

// The pause between exchanges that fail is as long as they have failed, up to a bound.
func TestThePauseAfterFailuresGrows(t *testing.T) {
	for lease, pauses := range map[time.Duration][]time.Duration{
		time.Minute:            {10, 10, 20, 40, 80, 160, 250, 250},
		160 * time.Millisecond: {10, 10, 20, 20},
	} {
		p := leased(lease, options{}, func(*Hold) {})
		now := time.Second
		fail := func(pause time.Duration) {
			p.begin(now, 1)
			p.failed(now, errLate, failing)
			require.Equal(t, now+pause*time.Millisecond, p.due())
		}
		p.adds(1, 1, true)
		for _, pause := range pauses {
			fail(pause)
			now = p.due()
		}
		p.exchange(now, window.Places{Used: 1})
		fail(10)
		p.adds(1, 2, false)
		require.Zero(t, p.due(), "whoever has just come knows of no failure")
		p.exchange(now, window.Places{Tokens: []uint64{0, 7}, Used: 1})
		fail(10)
		p.begin(now, 1)
		p.failed(now, window.ErrRange, mistaken)
		require.Equal(t, now+share(lease, renewShare), p.due(), "what is held is renewed")
		now += lease / 8
		fail(10) // a store that answers is there
	}
}

// After a failure, the next exchange says all again in its time: no place in line is known any more, and the store may
// have granted what was asked.
func TestAFailureLeavesNothingKnown(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	const now = 10 * time.Second
	first := p.adds(1, 1, true)
	p.exchange(now, window.Places{Used: 1, Waiting: 1, Next: 5 * time.Millisecond})
	require.Equal(t, now+6*time.Millisecond, p.due(), "when a lease ends")
	p.begin(now, 1)
	p.failed(now, errLate, failing)
	p.again()
	require.Equal(t, now+minPause, p.due())
	second := p.adds(1, 1, false)
	require.Equal(t, waiting, second.state)
	p.begin(now, 1)
	p.failed(now, errLate, away)
	require.Equal(t, []state{refused, refused}, []state{first.state, second.state})
	require.False(t, p.idle(now))
	require.True(t, p.idle(now+time.Second))
	p.open("another key", "", time.Second)
	require.Equal(t, exchanges{claim: p.claim, asked: p.asked, nextAt: never}, p.exchanges)
}

// An observer that panics harms nobody but whoever has called it: others are told that their places have ended, the
// store gets all that is given back, and nobody holds what was not returned.
func TestAnObserverThatPanicsHarmsNobodyElse(t *testing.T) {
	for _, wrapped := range []bool{false, true} { // in memory, and in exchanges
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			defer b.Close()
			var backend window.Backend = b
			if wrapped {
				backend = struct{ window.Backend }{b}
			}
			told := 0
			l := New(backend, WithObserver(func(_ context.Context, e Event) {
				if e.Kind == Released || e.Kind == Lost {
					told++
					panic("a mistake")
				}
			}))
			limit := Limit{Max: 3, Lease: time.Minute}
			var ctxs []context.Context
			acquire := func(key string) *Hold {
				h, _, err := l.TryAcquire(t.Context(), key, limit, 1)
				require.NoError(t, err)
				ctxs = append(ctxs, h.Context())
				return h
			}
			for _, key := range []string{"a", "a", "b", "b"} {
				acquire(key)
			}
			require.Panics(t, acquire("a").Release)
			if wrapped {
				l.mu.Lock()
				l.byID[id{"b", ""}].leasedUntil = 0 // as if the process had stood still, which the next call notices
				l.mu.Unlock()
				require.Panics(t, func() { acquire("b") })
				synctest.Wait()
				require.Equal(t, Stats{InUse: 2, Keys: 1, Lost: 2}, l.Stats())
			}
			require.Panics(t, func() { l.Close() })
			for _, ctx := range ctxs {
				require.Error(t, ctx.Err())
			}
			require.Equal(t, 5, told)
			require.Empty(t, l.byID)
			synctest.Wait()
			require.Empty(t, l.queues, "leases may be as many as calls")
			for range b.ListPlaces(t.Context()) {
				t.Error("places are held by nobody")
			}
		})
	}
}
