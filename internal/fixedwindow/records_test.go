package fixedwindow

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// A DECREASE that fails has counted nothing, so a slot is not claimed by it.
func TestEffectsSayWhichSlotsHaveCounted(t *testing.T) {
	bands, _ := slot.BandsFor(time.Second, math.MaxUint16)
	r := &records{bands: &bands}
	a := slot.Action{Kind: slot.Claim, Slots: [2]bool{true, true}}
	requests := bands.Requests(nil, a, 0)
	responses := make([]conn.Response, len(requests))
	require.Equal(t, [2]bool{}, r.effectsOf(a, requests, responses).added)
	for i, q := range requests {
		responses[i].OK = q.Slot == slot.B
	}
	require.Equal(t, [2]bool{slot.B: true}, r.effectsOf(a, requests, responses).added)
}
