package survival_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
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

// forEachSize runs a test for each value size.
func forEachSize(t *testing.T, tests ...func(*testing.T)) {
	for i, test := range tests {
		t.Run(fmt.Sprintf("uint%d", 8<<i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

func TestServerSurvivesProcessesThatAreKilledAndRestarted(t *testing.T) {
	forEachSize(t, killAndRestart[uint8], killAndRestart[uint16], killAndRestart[uint32], killAndRestart[uint64])
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

func TestServerSurvivesTheAbsenceOfItsOnlyClient(t *testing.T) {
	for _, absence := range []time.Duration{3 * time.Second, 30 * time.Second, 10 * time.Minute, 24 * time.Hour} {
		t.Run(absence.String(), func(t *testing.T) {
			forEachSize(t, absent[uint8](absence), absent[uint16](absence), absent[uint32](absence), absent[uint64](absence))
		})
	}
}

func absent[T codec.Value](absence time.Duration) func(t *testing.T) {
	return func(t *testing.T) { goesAway[T](t, absence) }
}

func goesAway[T codec.Value](t *testing.T, absence time.Duration) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithRealCollector())
	for seed := range uint64(3) {
		p := start[T](t, srv, throttr.Config{})
		r := rand.New(rand.NewPCG(3, seed))
		for _, scale := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
			p.hit(r, keys(50), scale, 20*time.Millisecond, 100)
		}
		time.Sleep(3 * time.Second)
		p.end()
		require.NotEmpty(t, testkit.Keys(srv))
		time.Sleep(absence)
		require.False(t, srv.LockedUp())
	}
	p := start[T](t, srv, throttr.Config{})
	_, err := p.limiter.Hit(t.Context(), "k", time.Minute, 10)
	require.NoError(t, err)
	time.Sleep(sweepTime)
	require.Empty(t, testkit.Keys(srv), "records of the dead")
	require.Zero(t, srv.Expired(), "records that expired")
	stats := p.backend.Records()
	require.NotZero(t, stats.Sweeps)
	require.NotZero(t, stats.Orphans)
	require.Zero(t, stats.Foreign)
}

// The shortest margins are less than a second. Their records would expire if anything was done
// before the server is parked.
func TestRestartedServerIsParkedBeforeRecordsExpire(t *testing.T) {
	forEachSize(t, restarts[uint8], restarts[uint16])
}

func restarts[T codec.Value](t *testing.T) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithRealCollector())
	begin := func(seed uint64) *process[T] {
		p := start[T](t, srv, throttr.Config{})
		r := rand.New(rand.NewPCG(10, seed))
		for _, scale := range []time.Duration{200 * time.Millisecond, 240 * time.Millisecond, time.Second, time.Minute} {
			p.hit(r, keys(50), scale, 10*time.Millisecond, 100)
		}
		return p
	}
	running := []*process[T]{begin(0), begin(1)}
	time.Sleep(5 * time.Second)
	r := rand.New(rand.NewPCG(11, 11))
	for i := range uint64(testkit.Fewer(60)) {
		running[i%2].end()
		running[i%2] = begin(2 + i)
		time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
		require.Zero(t, srv.Expired(), "records that expired")
		require.False(t, srv.LockedUp())
		require.NoError(t, srv.Restart(false))
		inserts := srv.Requests(codec.OpInsert)
		time.Sleep(2 * time.Second)
		require.Greater(t, srv.Requests(codec.OpInsert), inserts+10, "the clients go on")
		for _, p := range running {
			require.True(t, p.client.Stats().Servers[0].Parked)
		}
		require.Contains(t, srv.Keys(), "")
	}
}
