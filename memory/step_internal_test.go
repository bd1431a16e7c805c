package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// Windows that end between the steps of a cleaning, and move to slots that it is yet to visit,
// do not make a step longer.
func TestCleaningStepRemovesNoMoreWindowsThanItVisitsSlots(t *testing.T) {
	now := time.Now()
	most := 0
	b := New(WithClock(func() time.Time { return now }), WithBeforeDrop(func(dropped []Dropped) {
		most = max(most, len(dropped))
		now = now.Add(time.Second)
	}))
	defer b.Close()
	tab := &b.shards[0].windows[0]
	tab.resize(256)
	for i := range 270 { // a run of slots; the window in the last one ends first
		k := id{key: string([]byte{byte(i), byte(i >> 8)}), scale: 2 * time.Second, kind: kind(window.FixedWindow)}
		if i == 269 {
			k.scale = time.Second
		}
		tab.insert(&k).set(entry{scale: k.scale})
	}
	now = now.Add(time.Second)
	require.Positive(t, b.Clean())
	require.Equal(t, cleanStep, most)
}
