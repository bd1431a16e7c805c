package fixedwindow

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/valuesize"
	"github.com/throttr-go/throttr/mockserver"
)

func TestRecordsHaveTheUnitOfTheirBands(t *testing.T) {
	for _, test := range []struct {
		scale time.Duration
		size  int
		unit  codec.Unit
	}{
		{200 * time.Millisecond, 4, codec.Microseconds},
		{time.Second, 1, codec.Seconds},
		{time.Second, 2, codec.Milliseconds},
		{time.Second, 8, codec.Nanoseconds},
		{time.Hour, 1, codec.Minutes},
		{24 * time.Hour, 1, codec.Hours},
	} {
		bands, ok := slot.BandsFor(test.scale, valuesize.Max(test.size))
		require.True(t, ok)
		require.Equal(t, test.unit, unitOf(&bands), "%v, %d bytes", test.scale, test.size)
		require.Equal(t, test.unit.Duration(), bands.Unit)
	}
	_, ok := slot.BandsFor(200*time.Millisecond, valuesize.Max(1))
	require.False(t, ok)
}

// The requests of all verbs, as a server receives them.
func TestRequestsAreEncodedForTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		srv := inMemory(t, mockserver.WithObserver(func(e mockserver.Exec) {
			if _, ok := ParseName([]byte(e.Key)); ok {
				got = append(got, describe(e.Request))
			}
		}))
		o := options[uint16](t, srv)
		bands, ok := slot.BandsFor(time.Minute, maxValue[uint16]()) // seconds, T = 236
		require.True(t, ok)
		r := records[uint16]{&bands, slotNames(&bands, "k", "")}
		cl := o.Calls.Get()
		cl.MostTTL = r.bands.Top
		r.add(cl,
			slot.Request{Verb: slot.Insert, Slot: slot.A, Value: 65530},
			slot.Request{Verb: slot.Query, Slot: slot.A},
			slot.Request{Verb: slot.Query, Slot: slot.B},
			slot.Request{Verb: slot.Decrease, Slot: slot.A, Value: 3},
			slot.Request{Verb: slot.Increase, Slot: slot.A, Value: 1},
			slot.Request{Verb: slot.Query, Slot: slot.A},
			slot.Request{Verb: slot.PatchQuota, Slot: slot.A, Value: 7},
			slot.Request{Verb: slot.PatchTTL, Slot: slot.A, Value: 100},
			slot.Request{Verb: slot.Query, Slot: slot.A},
			slot.Request{Verb: slot.Purge, Slot: slot.A},
			slot.Request{Verb: slot.Purge, Slot: slot.B},
		)
		_, _, err := o.Servers[0].Do(t.Context(), cl)
		require.NoError(t, err)
		require.Equal(t, []string{
			"INSERT wsA:1m0s:k 65530 236 seconds", "QUERY wsA:1m0s:k", "QUERY wsB:1m0s:k",
			"DECREASE quota 3 wsA:1m0s:k", "INCREASE quota 1 wsA:1m0s:k", "QUERY wsA:1m0s:k",
			"PATCH quota 7 wsA:1m0s:k", "PATCH TTL 100 wsA:1m0s:k", "QUERY wsA:1m0s:k",
			"PURGE wsA:1m0s:k", "PURGE wsB:1m0s:k",
		}, got)

		require.Equal(t, slot.Observation{Exists: true, Count: 5, TTL: 235}, r.observe(cl.Responses[1]))
		require.Equal(t, slot.Observation{}, r.observe(cl.Responses[2]))
		require.Equal(t, slot.Observation{Exists: true, Count: 7, TTL: 235}, r.observe(cl.Responses[5]))
		require.Equal(t, slot.Observation{Exists: true, Count: 65528, TTL: 99}, r.observe(cl.Responses[8]))
	})
}

func describe(r codec.Request) string {
	unit := map[codec.Unit]string{codec.Seconds: "seconds"}
	change := map[codec.Change]string{codec.Patch: "PATCH", codec.Increase: "INCREASE", codec.Decrease: "DECREASE"}
	attribute := map[codec.Attribute]string{codec.Quota: "quota", codec.TimeToLive: "TTL"}
	switch r := r.(type) {
	case codec.Insert[uint16]:
		return fmt.Sprintf("INSERT %s %d %d %s", r.Key, r.Quota, r.TTL.Amount, unit[r.TTL.Unit])
	case codec.Query:
		return fmt.Sprintf("QUERY %s", r.Key)
	case codec.Update[uint16]:
		return fmt.Sprintf("%s %s %d %s", change[r.Change], attribute[r.Attribute], r.Value, r.Key)
	case codec.Purge:
		return fmt.Sprintf("PURGE %s", r.Key)
	}
	return fmt.Sprintf("%T", r)
}

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
