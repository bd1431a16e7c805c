package survival_test

import (
	"math/rand/v2"
	"strings"
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

// fleet is processes of one server, and the times at which one of them has sent a LIST.
type fleet struct {
	processes []*process[uint16]

	mu    sync.Mutex // guards what follows
	lists []time.Time
	kill  bool // the next one that sends a LIST dies
}

func startFleet(t *testing.T, srv *mockserver.Server, n int) *fleet {
	f := &fleet{}
	for i := range n {
		p := start[uint16](t, srv, throttr.Config{})
		f.processes = append(f.processes, p)
		onList := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lists = append(f.lists, time.Now())
			if f.kill {
				f.kill = false
				p.kill()
			}
		}
		p.onList.Store(&onList)
		p.hit(rand.New(rand.NewPCG(4, uint64(i))), keys(100), time.Second, 5*time.Second, 100)
	}
	return f
}

// pauses lets time pass, and returns the times between two LISTs.
func (f *fleet) pauses(d time.Duration) (all []time.Duration) {
	f.mu.Lock()
	f.lists = nil
	f.mu.Unlock()
	time.Sleep(d)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(f.lists); i++ {
		all = append(all, f.lists[i].Sub(f.lists[i-1]))
	}
	return all
}

func TestOneProcessOfAFleetSweeps(t *testing.T) {
	for name, interval := range map[string]time.Duration{"parked": time.Minute, "not parked": 4500 * time.Millisecond} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithRealCollector())
			if name != "parked" {
				srv.Set("somebody's", 1, 24*time.Hour)
			}
			f := startFleet(t, srv, testkit.Fewer(50))
			time.Sleep(time.Second)
			require.Equal(t, 1, srv.Requests(codec.OpList), "one process sweeps at the start")
			time.Sleep(30 * time.Second) // by the first health check, all know whether the server is parked

			pauses := f.pauses(20 * interval)
			require.GreaterOrEqual(t, len(pauses), 16)
			for _, p := range pauses {
				require.InDelta(t, interval, p, float64(interval/3))
			}

			f.mu.Lock()
			f.kill = true
			f.mu.Unlock()
			pauses = f.pauses(6 * interval)
			require.False(t, f.kill, "a leader was killed in the midst of a sweep")
			require.GreaterOrEqual(t, len(pauses), 4)
			require.Less(t, pauses[0], interval*95/100, "another one does not wait for a whole period")
			for _, p := range pauses[1:] {
				require.InDelta(t, interval, p, float64(interval/3))
			}
		})
	}
}

func TestForeignRecordsAreNotTouchedAndTheServerIsNotParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithRealCollector())
		const ours = "wiA:1s:k" // the name of a record of windows
		foreign := []string{"jobs", "zz" + ours, strings.ToUpper(ours), ours[:3]}
		for _, key := range foreign {
			srv.Set(key, 7, time.Hour)
		}
		other := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		set, err := other.Set(t.Context(), ours, []byte("a buffer"), codec.TTL[uint16]{Amount: 1, Unit: codec.Hours})
		require.NoError(t, err)
		require.True(t, set)
		p := start[uint16](t, srv, throttr.Config{})
		r := rand.New(rand.NewPCG(5, 5))
		p.hit(r, keys(50), time.Second, 20*time.Millisecond, 100)
		p.hit(r, keys(50), time.Minute, 20*time.Millisecond, 100)
		time.Sleep(40 * time.Second)
		require.Len(t, testkit.Keys(srv), len(srv.Keys())-1, "no parking record")
		require.False(t, p.client.Stats().Servers[0].Parked)
		require.Equal(t, len(foreign)+1, p.backend.Records().Foreign)
		for _, key := range append(foreign, ours) {
			left, ok := srv.TTL(key)
			require.True(t, ok)
			require.Equal(t, time.Hour-40*time.Second, left)
		}

		// Records of the dead are removed before they expire.
		p.end()
		q := start[uint16](t, srv, throttr.Config{})
		time.Sleep(6 * time.Minute)
		require.ElementsMatch(t, append(foreign, ours), testkit.Keys(srv))
		require.Zero(t, srv.Expired())
		require.Equal(t, len(foreign)+1, q.backend.Records().Foreign)
	})
}
