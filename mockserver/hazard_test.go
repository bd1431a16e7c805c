package mockserver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

var virtual = mockserver.WithVirtualClock()

func with(h mockserver.Hazard) mockserver.Option    { return mockserver.WithHazard(h, true) }
func without(h mockserver.Hazard) mockserver.Option { return mockserver.WithHazard(h, false) }

func TestGraceKeepsTheKeyOfAnExpiredRecord(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, "01", w.ask(insert("k", 1, 1, codec.Seconds)))
		srv.Advance(time.Second - 1)
		require.Equal(t, "01"+"0100"+"040000", w.ask(query("k")))
		srv.Advance(1)
		again := insert("k", 1, 1, codec.Hours)
		require.Equal(t, "00000000", w.ask(query("k"), again, increase("k", 1), purge("k")))
		require.Equal(t, "00", w.ask(uint16.Set{Key: []byte("k"), TTL: again.TTL}))
		srv.Advance(10*time.Second - 1)
		require.Equal(t, "00", w.ask(again))
		srv.Advance(1)
		require.Equal(t, "01", w.ask(again))
		require.Equal(t, 1, srv.Expired())
		buffer := uint16.Set{Key: []byte("b"), TTL: uint16.TTL{Amount: 1, Unit: codec.Seconds}}
		require.Equal(t, "01", w.ask(buffer))
		srv.Advance(time.Second)
		require.Equal(t, "00", w.ask(buffer), "a dead buffer is not overwritten")
	}, virtual)
}

func TestHazardsThatAreOff(t *testing.T) {
	for name, c := range map[string]struct {
		off  mockserver.Hazard
		test func(t *testing.T, srv *mockserver.Server, w *wire)
	}{
		"the key of an expired record is free at once": {mockserver.Grace, func(t *testing.T, srv *mockserver.Server, w *wire) {
			require.Equal(t, "0101", w.ask(insert("k", 1, 1, codec.Seconds), insert("long", 1, 5, codec.Seconds)))
			srv.Advance(time.Second)
			require.Equal(t, []string{"long"}, srv.Keys())
			require.Equal(t, "0001", w.ask(query("k"), insert("k", 1, 1, codec.Seconds)))
			require.Equal(t, 1, srv.Expired())
		}},
		"an INCREASE past the largest value fails": {mockserver.Wrap, func(t *testing.T, srv *mockserver.Server, w *wire) {
			require.Equal(t, "010001", w.ask(insert("k", 65534, 1, codec.Hours), increase("k", 2), increase("k", 1)))
			quota, _ := srv.Counter("k")
			require.Equal(t, uint64(65535), quota)
		}},
		"messages reach subscribers only": {mockserver.Events, func(t *testing.T, srv *mockserver.Server, w *wire) {
			require.Zero(t, srv.Publish("*", []byte("all")))
			require.Empty(t, w.received())
			require.Equal(t, "01", w.ask(subscribe("*")))
			require.Equal(t, event(t, "*", "x")+"01", w.ask(publish("*", "x")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *mockserver.Server) { c.test(t, srv, connect(t, srv)) }, virtual, without(c.off))
		})
	}
}

func TestPublishPanicsIfThePayloadDoesNotFit(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithValueSize(1))
	require.Panics(t, func() { srv.Publish("*", make([]byte, 256)) })
}
