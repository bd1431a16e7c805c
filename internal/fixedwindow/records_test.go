package fixedwindow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

func TestOutcomesOfActions(t *testing.T) {
	bands, ok := slot.BandsFor(time.Second, maxValue[uint16]())
	require.True(t, ok)
	r := records[uint16]{&bands, slotNames(&bands, "k", "")}
	shown := conn.Response[uint16]{OK: true, Quota: 65532, TTL: codec.TTL[uint16]{Amount: uint16(bands.Top - 1)}}
	response := map[byte]conn.Response[uint16]{'+': {OK: true}, '-': {}, 'q': shown}
	seen := slot.Observation{Exists: true, Count: 3, TTL: bands.Top - 1}
	for _, test := range []struct {
		action    slot.Action
		responses string
		want      effects
	}{
		{slot.Action{Kind: slot.Open, Slot: slot.A}, "++q++", effects{armed: true, added: true, claimed: [2]bool{slot.A: true}, shown: [2]slot.Observation{slot.A: seen}}},
		{slot.Action{Kind: slot.Open, Slot: slot.A}, "++q--", effects{armed: true, added: true, claimed: [2]bool{slot.A: true}, shown: [2]slot.Observation{slot.A: seen}}},
		{slot.Action{Kind: slot.Open, Slot: slot.B}, "-+q++", effects{added: true, claimed: [2]bool{slot.B: true}, shown: [2]slot.Observation{slot.B: seen}}},
		{slot.Action{Kind: slot.Open, Slot: slot.B}, "+-q++", effects{armed: true, shown: [2]slot.Observation{slot.B: seen}}},
		{slot.Action{Kind: slot.Open, Slot: slot.B}, "---++", effects{}},
		{slot.Action{Kind: slot.Create, Slot: slot.A}, "+", effects{inserted: true}},
		{slot.Action{Kind: slot.Create, Slot: slot.A, Frees: true}, "-++", effects{}},
		{slot.Action{Kind: slot.Join, Slot: slot.B}, "+q", effects{added: true, claimed: [2]bool{slot.B: true}, shown: [2]slot.Observation{slot.B: seen}}},
		{slot.Action{Kind: slot.Claim, Slots: [2]bool{true, true}}, "+q+-", effects{added: true, claimed: [2]bool{true, true}, shown: [2]slot.Observation{slot.A: seen}}},
		{slot.Action{Kind: slot.Remove, Slots: [2]bool{true, true}}, "+-", effects{purged: 1}},
		{slot.Action{Kind: slot.Remove, Slots: [2]bool{true, true}}, "++", effects{purged: 2}},
	} {
		requests := r.bands.Requests(nil, test.action, 1)
		require.Len(t, test.responses, len(requests), "%v", test.action.Kind)
		var responses []conn.Response[uint16]
		for _, c := range []byte(test.responses) {
			responses = append(responses, response[c])
		}
		require.Equal(t, test.want, r.effectsOf(test.action, requests, responses), "%v %s", test.action.Kind, test.responses)
	}
}
