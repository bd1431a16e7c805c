package survival_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// forgedList returns a LIST in which all records of srv have expired, and others do not exist.
func forgedList(t *testing.T, srv *mockserver.Server) []byte {
	var entries []codec.ListEntry[uint16]
	for _, key := range append(srv.Keys(), "rl:1s:7:never", "", "never", "rl:1s:946684801:never") {
		entries = append(entries, codec.ListEntry[uint16]{Key: []byte(key), Unit: codec.Seconds, Expires: 1})
	}
	b, err := codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{entries}}.AppendBinary(nil)
	require.NoError(t, err)
	return b
}

func TestWrongListsDoNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		srv := testkit.InMemory(t, mockserver.WithRealCollector(), mockserver.WithHazard(mockserver.GarbledList, true),
			mockserver.WithObserver(h.executed))
		srv.Set("somebody's", 7, 24*time.Hour)
		sweeper := newSweeper(t, srv, throttr.ParkingNever, time.Now)
		begin := func(seed uint64) *process[uint16] {
			p := start[uint16](t, srv, throttr.Config{Parking: throttr.ParkingNever})
			p.hit(rand.New(rand.NewPCG(8, seed)), keys(100), time.Second, 20*time.Millisecond, 10)
			return p
		}
		r := rand.New(rand.NewPCG(8, 8))
		broken := 0
		for i := range uint64(300) {
			p := begin(i)
			time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
			if i%2 == 0 {
				p.end()
			}
			list := forgedList(t, srv)
			var undo func()
			switch r.IntN(5) {
			case 0:
				undo = srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: list})
			case 1:
				undo = srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: list[:r.IntN(len(list)-1)+1]})
			case 2:
				list[9+r.IntN(len(list)-9)] ^= byte(1 + r.IntN(255))
				undo = srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: list})
			case 3:
				undo = srv.Inject(mockserver.Fault{Op: codec.OpList, Disconnect: true})
			default:
				undo = func() {}
			}
			if _, err := sweeper.Sweep(t.Context(), time.Now()); err != nil {
				broken++
			}
			undo()
			p.end()
		}
		require.Greater(t, broken, 50)
		h.mu.Lock()
		require.Empty(t, h.wrong)
		require.Greater(t, h.removed, 1000)
		h.mu.Unlock()
		_, ok := srv.Counter("somebody's")
		require.True(t, ok)
		start[uint16](t, srv, throttr.Config{Parking: throttr.ParkingNever})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"somebody's"}, testkit.Keys(srv))
		require.Zero(t, srv.Expired())
	})
}

func TestServerIsParkedThoughListsAreGarbled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithRealCollector(), mockserver.WithHazard(mockserver.GarbledList, true))
		p := start[uint16](t, srv, throttr.Config{})
		for i := range uint64(4) {
			p.hit(rand.New(rand.NewPCG(9, i)), keys(1000), time.Second, 10*time.Millisecond, 10)
		}
		var churn sync.WaitGroup
		churn.Go(func() {
			for p.ctx.Err() == nil {
				srv.Set("short", 1, time.Hour)
				srv.Delete("short")
				time.Sleep(50 * time.Millisecond)
			}
		})
		time.Sleep(30 * time.Second)
		require.True(t, p.client.Stats().Servers[0].Parked)
		require.Zero(t, p.backend.Stats().Foreign)
		p.end()
		churn.Wait()
	})
}
