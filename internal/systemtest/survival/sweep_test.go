package survival_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// Processes are killed and restarted. They hit, set and reset, while others sweep without a pause.
func TestSweepsDoNotDisturbSetAndReset(t *testing.T) {
	for _, mode := range []throttr.Parking{throttr.ParkingAlways, throttr.ParkingNever} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const scale, limit = time.Second, 20
				srv := testkit.InMemory(t, mockserver.WithRealCollector())
				srv.Inject(mockserver.Fault{Delay: time.Millisecond})
				l := newLedger()
				seed := uint64(0)
				begin := func() *process[uint16] {
					p := start[uint16](t, srv, throttr.Config{Parking: mode})
					for range 4 {
						seed++
						seed := seed
						p.work.Go(func() { own(l, p, rand.New(rand.NewPCG(6, seed)), fmt.Sprint("own:", seed), scale) })
						p.work.Go(func() {
							for r := rand.New(rand.NewPCG(16, seed)); p.ctx.Err() == nil; {
								shared(l, p, fmt.Sprint("shared:", r.IntN(5)), scale, limit)
								time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
							}
						})
					}
					return p
				}
				removed := sweepRestarted(t, srv, mode, 2, begin)
				l.require(t, scale, limit)
				if testkit.Thorough() { // otherwise there is no time for a record to be doomed
					require.NotZero(t, removed)
				}
				require.Zero(t, srv.Expired())
				t.Log(removed, "records were removed by sweepers")
			})
		})
	}
}

// sweepRestarted kills and restarts four processes, while clients sweep without a pause. Begin starts one. It returns
// how many records the sweeps have removed.
func sweepRestarted(t *testing.T, srv *mockserver.Server, mode throttr.Parking, clients int, begin func() *process[uint16]) int {
	processes := make([]*process[uint16], 4)
	for i := range processes {
		processes[i] = begin()
	}
	ctx, stop := context.WithTimeout(t.Context(), testkit.Fewer(2*time.Minute))
	defer stop()
	var removed atomic.Int64
	var sweeping sync.WaitGroup
	for range clients {
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Parking: mode}))
		sweeping.Go(func() {
			for ctx.Err() == nil {
				removed.Add(int64(sweepOnce(ctx, client).Removed))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	r := rand.New(rand.NewPCG(7, 7))
	for ctx.Err() == nil {
		i := r.IntN(len(processes))
		processes[i].end()
		processes[i] = begin()
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
	}
	sweeping.Wait()
	for _, p := range processes {
		p.end()
	}
	return int(removed.Load())
}

// sweepOnce sweeps the only server of a client. It ignores errors, which the test has caused.
func sweepOnce(ctx context.Context, client *throttr.Client[uint16]) inspect.Swept {
	all, _ := client.Sweep(ctx, false)
	if len(all) == 0 {
		return inspect.Swept{}
	}
	return all[0]
}
