package mockserver_test

import (
	"fmt"
	"math/rand/v2"
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
		"Publish reaches nobody": {mockserver.Events, func(t *testing.T, srv *mockserver.Server, w *wire) {
			require.Zero(t, srv.Publish("*", []byte("all")))
			require.Empty(t, w.received())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *mockserver.Server) { c.test(t, srv, connect(t, srv)) }, virtual, without(c.off))
		})
	}
}

func TestIncreaseWrapsAndEventsReachEveryConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		a, b := connect(t, srv), connect(t, srv)
		require.Equal(t, "0101", a.ask(insert("k", 65535, 1, codec.Hours), increase("k", 3)))
		quota, ok := srv.Counter("k")
		require.True(t, ok)
		require.Equal(t, uint64(2), quota)

		require.Equal(t, 2, srv.Publish("*", []byte("all")))
		for _, w := range []*wire{a, b} {
			require.Equal(t, "190103002a616c6c", w.received())
		}
		require.Equal(t, "00", a.ask(query("nothing")))
	})
}

func TestPublishPanicsIfThePayloadDoesNotFit(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithValueSize(1))
	require.Panics(t, func() { srv.Publish("*", make([]byte, 256)) })
}

// load inserts counters with a TTL of a second for 100 seconds, some 200 a second. It
// returns after how many seconds the server stopped responding; 0 if it did not.
func load(t *testing.T, srv *mockserver.Server, thenPurge bool) int {
	w := connect(t, srv)
	rnd := rand.New(rand.NewPCG(1, 2))
	inserted := 0
	for second := 1; second <= 100; second++ {
		for range 200 {
			srv.Advance(time.Duration(rnd.IntN(int(10 * time.Millisecond))))
			response := w.ask(insert(fmt.Sprint(inserted), 1, 1, codec.Seconds))
			if thenPurge && inserted >= 50 {
				response += w.ask(purge(fmt.Sprint(inserted - 50)))
			}
			inserted++
			if response == "" {
				return second
			}
			require.NotContains(t, response, "00")
		}
	}
	return 0
}

func TestServerLocksUpIfManyRecordsExpire(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		stopped := load(t, srv, false)
		require.True(t, stopped > 1 && stopped < 30, "stopped after %d s", stopped)
		require.True(t, srv.LockedUp())

		w := connect(t, srv)
		require.Empty(t, w.ask(query("k")), "it accepts connections and never responds")
		require.Zero(t, srv.Publish("*", nil))
		require.False(t, w.closed())
		require.NoError(t, srv.Restart(false))
		require.False(t, srv.LockedUp())
		require.Equal(t, "00", connect(t, srv).ask(query("k")))
	}, virtual, with(mockserver.LockUp))
}

func TestRecordsThatExpireAreHarmfulOnlyWithLockUp(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		require.Zero(t, load(t, srv, true), "purged in time")
		require.Zero(t, srv.Expired())
		require.False(t, srv.LockedUp())
	}, virtual, with(mockserver.LockUp))
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		require.Zero(t, load(t, srv, false))
		require.NotZero(t, srv.Expired())
	}, virtual)
}
