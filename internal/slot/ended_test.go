package slot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Hits can be given back to a window just after a Reset has ended it. Its slot does not look free then: with a late hit
// in the other slot, one client would open one slot, and another client the other one.
func TestHitsThatAreGivenBackAfterAReset(t *testing.T) {
	w := &world{settings: settings{largest: 65535, limit: 5, returnRate: 1}, tracing: true}
	w.bands, _ = BandsFor(time.Minute, w.largest)
	w.server.world = w
	do := func(client string, a Action, n uint64) Effects {
		w.now += 10 * time.Millisecond
		e := Effects{Lookup: Lookup{First: a.Slot, Sent: w.time()}}
		for _, q := range w.bands.Requests(nil, a, n) {
			r := w.server.execute(client, a, q)
			e.Note(q, r.ok, r.record)
		}
		e.Received = w.time()
		return e
	}
	lookUp := func(client string, h History, first ID) History {
		return w.bands.Extend(h, do(client, Action{Slot: first}, 0).Lookup)
	}
	open := func(client string, first ID) (opened Window) { // with a hit
		a := w.bands.ToOpen(lookUp(client, History{}, first))
		_, opened = w.bands.Result(a, 1, do(client, a, 1))
		return opened
	}
	resets := func(client string) Action { // returns the End
		var h History
		var ends Window
		for {
			h = lookUp(client, h, A)
			a := w.bands.Reset(h, &ends)
			if a.Kind != Look {
				return a
			}
			w.now = max(w.now, a.At.Sub(epoch))
		}
	}

	open("c1", A)
	do("c2", resets("c2"), 0)
	old := open("c3", A) // in slot B, and is not told of what follows
	do("c2", resets("c2"), 0)
	open("c1", A)

	end := resets("c2")
	taken := w.bands.Join(A, w.time().Add(time.Second))
	_, last := w.bands.Result(taken, 0, do("c1", taken, 0))
	do("c2", end, 0)
	one := w.bands.ToOpen(lookUp("c4", History{}, B))
	require.Equal(t, Open, one.Kind)
	back, ok := w.bands.GiveBack(last, w.time())
	require.True(t, ok)
	do("c1", back, 1)
	do("c3", w.bands.Join(old.Slot, old.Until), 1)
	other := w.bands.ToOpen(lookUp("c5", History{}, A))
	do("c4", one, 1)
	if other.Kind == Open {
		do("c5", other, 1)
	}
	require.Empty(t, w.violation, w.String())
}
