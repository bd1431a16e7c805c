package survival_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// sweepTime is enough for sweepers to come twice, and for names to be of no use any more.
const sweepTime = 5*time.Minute + 10*time.Second

func keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("user:", i)
	}
	return all
}

func TestServerSurvivesProcessesThatAreKilledAndRestarted(t *testing.T) {
	testkit.ForEachSize(t, killAndRestart[uint8], killAndRestart[uint16], killAndRestart[uint32], killAndRestart[uint64])
}

func killAndRestart[T codec.Value](t *testing.T) {
	const processes, limit = 2, 100
	lasts := testkit.Fewer(10 * time.Minute)
	r := rand.New(rand.NewPCG(1, uint64(codec.Size[T]())))
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithRealCollector())
	begin := func(seed uint64) *process[T] {
		p := start[T](t, srv, throttr.Config{})
		r := rand.New(rand.NewPCG(2, seed))
		p.hit(r, keys(100), time.Second, 40*time.Millisecond, limit)
		p.hit(r, keys(20), 5*time.Second, 200*time.Millisecond, limit)
		p.hit(r, keys(20), time.Minute, 200*time.Millisecond, limit)
		return p
	}
	var running [processes]*process[T]
	for i := range running {
		running[i] = begin(uint64(i))
	}
	for seed, end := uint64(processes), time.Now().Add(lasts); time.Now().Before(end); seed++ {
		time.Sleep(time.Second + time.Duration(r.Int64N(int64(3*time.Second))))
		i := r.IntN(processes)
		running[i].end()
		running[i] = begin(seed)
		require.False(t, srv.LockedUp())
	}
	for _, p := range running {
		p.end()
	}
	start[T](t, srv, throttr.Config{})
	time.Sleep(sweepTime)
	require.Empty(t, testkit.Keys(srv), "records of the dead")
	require.Zero(t, srv.Expired(), "records that expired")
}
