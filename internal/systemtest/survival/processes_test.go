// Package survival_test has processes die, and requires that servers with the collector of a real
// one neither lock up nor keep what the dead have left.
package survival_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/sweep"
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

// Nobody else is alive, and no process lives long enough to remove a record.
func TestServerSurvivesProcessesThatDieAtOnce(t *testing.T) {
	testkit.ForEachSize(t, dieAtOnce[uint8], dieAtOnce[uint16], dieAtOnce[uint32], dieAtOnce[uint64])
}

func dieAtOnce[T codec.Value](t *testing.T) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithRealCollector())
	srv.Inject(mockserver.Fault{Delay: 5 * time.Millisecond}) // so that many die before the server is parked
	r := rand.New(rand.NewPCG(20, uint64(codec.Size[T]())))
	hits := 0
	processes := testkit.Fewer(500)
	for i := range processes {
		p := start[T](t, srv, throttr.Config{})
		p.work.Go(func() {
			for n := 0; p.ctx.Err() == nil; n++ {
				if _, err := p.limiter.Hit(p.ctx, fmt.Sprint("user:", (i+7*n)%1000), time.Second, 100); err == nil {
					hits++
				}
			}
		})
		time.Sleep(10*time.Millisecond + time.Duration(r.Int64N(int64(80*time.Millisecond))))
		if i == processes-1 {
			time.Sleep(time.Second) // a process that dies while it connects leaves the timer as its probe has set it
		}
		p.end()
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
		require.False(t, srv.LockedUp(), "after %d processes", i+1)
	}
	require.NotZero(t, hits)
	time.Sleep(time.Hour)
	require.Zero(t, srv.Expired(), "records that expired")
}

func TestProgramsThatMakeOneHitDoNotListServersRepeatedly(t *testing.T) {
	for name, c := range map[string]struct {
		records, hits, infos, lists int
		parked                      bool
	}{
		"only ours":            {0, 2, 2, 1, true},   // before the first window is opened
		"few foreign records":  {5, 20, 2, 1, false}, // an INFO goes with the LIST
		"many foreign records": {11_000, 20, 20, 0, false},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithRealCollector())
			for i := range c.records {
				srv.Set(fmt.Sprint("foreign:", i), 1, 24*time.Hour)
			}
			srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			for range c.hits {
				p := start[uint16](t, srv, throttr.Config{})
				begin := time.Now()
				testkit.Hits(t, p.limiter, 1, "k", time.Hour, 1000)
				require.Less(t, time.Since(begin), 20*time.Millisecond)
				require.NoError(t, p.client.Close())
				p.end()
				require.Equal(t, c.parked, slices.Contains(srv.Keys(), ""))
				time.Sleep(3 * time.Second)
			}
			require.Equal(t, c.infos, srv.Requests(codec.OpInfo))
			require.Equal(t, c.lists, srv.Requests(codec.OpList))
		})
	}
}

var errKilled = errors.New("the process was killed")

// process is a process with one client and one backend. It has no network once it is killed.
type process[T codec.Value] struct {
	client  *throttr.Client[T]
	backend *throttr.ServerBackend
	limiter *throttr.RateLimit
	onList  atomic.Pointer[func()] // called when the process sends a LIST
	ctx     context.Context        // ends when the process is killed
	kill    context.CancelFunc
	work    sync.WaitGroup
}

// start starts a process that ends with the test at the latest.
func start[T codec.Value](t *testing.T, srv *mockserver.Server, cfg throttr.Config, opts ...throttr.BackendOption) *process[T] {
	t.Helper()
	p := &process[T]{}
	p.ctx, p.kill = context.WithCancel(context.Background())
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		if p.ctx.Err() != nil {
			return nil, errKilled
		}
		nc, err := srv.Dial(ctx)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(p.ctx, func() { nc.Close() })
		return &processConn[T]{nc, p}, nil
	}
	client, err := throttr.Connect[T](context.Background(), cfg)
	require.NoError(t, err)
	p.client, p.backend = client, client.Backend(opts...)
	p.limiter = testkit.NewRateLimit(p.backend)
	// What is left of a killed process has no way to the server. It ends.
	context.AfterFunc(p.ctx, func() { client.Close() })
	t.Cleanup(p.end)
	return p
}

// end kills the process and waits for what is left of it.
func (p *process[T]) end() {
	p.kill()
	p.work.Wait()
	p.client.Close()
}

// processConn is a connection of a process.
type processConn[T codec.Value] struct {
	net.Conn
	*process[T]
}

// Write implements [net.Conn].
func (c *processConn[T]) Write(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, errKilled
	}
	n, err := c.Conn.Write(b)
	if f := c.onList.Load(); f != nil && len(b) <= 36 && codec.Op(b[len(b)-1]) == codec.OpList { // perhaps behind others
		(*f)()
	}
	return n, err
}

// hit hits random keys of a scale, about every pause, until the process is killed.
func (p *process[T]) hit(r *rand.Rand, keys []string, scale, pause time.Duration, limit uint64) {
	r = rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
	p.work.Go(func() {
		for p.ctx.Err() == nil {
			p.limiter.Hit(p.ctx, keys[r.IntN(len(keys))], scale, limit)
			time.Sleep(pause/2 + time.Duration(r.Int64N(int64(pause))))
		}
	})
}

// fleet is processes of one server, and the times at which one of them has sent a LIST.
type fleet struct {
	mu    sync.Mutex // guards what follows
	lists []time.Time
	kill  bool // the next one that sends a LIST dies
}

func startFleet(t *testing.T, srv *mockserver.Server, n int) *fleet {
	f := &fleet{}
	for i := range n {
		p := start[uint16](t, srv, throttr.Config{})
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

// pauses lets time pass, and returns the times between two LISTs. It may have the next leader killed.
func (f *fleet) pauses(d time.Duration, kill bool) (all []time.Duration) {
	f.mu.Lock()
	f.lists = nil
	f.kill = kill
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
			const ours = "wiA:1s:k" // the name of a record of windows
			foreign := []string{"jobs", "zz" + ours, strings.ToUpper(ours), ours[:3]}
			if name == "parked" {
				foreign = nil
			}
			for _, key := range foreign {
				srv.Set(key, 7, 24*time.Hour)
			}
			begun := time.Now()
			f := startFleet(t, srv, testkit.Fewer(50))
			time.Sleep(time.Second)
			require.Equal(t, 1, srv.Requests(codec.OpList), "one process sweeps at the start")
			time.Sleep(30 * time.Second) // by the first health check, all know whether the server is parked

			pauses := f.pauses(20*interval, false)
			require.GreaterOrEqual(t, len(pauses), 16)
			killed := f.pauses(6*interval, true)
			require.False(t, f.kill, "a leader was killed in the midst of a sweep")
			require.GreaterOrEqual(t, len(killed), 4)
			require.Less(t, killed[0], interval*95/100, "another one does not wait for a whole period")
			for _, p := range append(pauses, killed[1:]...) {
				require.InDelta(t, interval, p, float64(interval/3))
			}
			for _, key := range foreign {
				left, _ := srv.TTL(key)
				require.Equal(t, 24*time.Hour-time.Since(begun), left, "%s was touched", key)
			}
		})
	}
}

// listOf returns a LIST of counters whose TTLs are over.
func listOf(t *testing.T, names []string) []byte {
	var entries []codec.ListEntry[uint16]
	for _, name := range names {
		entries = append(entries, codec.ListEntry[uint16]{Key: []byte(name), Unit: codec.Seconds, Expires: 1})
	}
	b, err := codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{entries}}.AppendBinary(nil)
	require.NoError(t, err)
	return b
}

func TestWrongListsDoNoHarm(t *testing.T) {
	for _, mode := range []throttr.Parking{throttr.ParkingAlways, throttr.ParkingNever} {
		testkit.Bubble(t, fmt.Sprint(mode), func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithRealCollector(), mockserver.WithHazard(mockserver.GarbledList, true))
			srv.Set("somebody's", 7, 24*time.Hour)
			cfg := throttr.Config{Parking: mode}
			sweeper := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Parking: mode, MaxRetries: -1}))
			user, open := start[uint16](t, srv, cfg), keys(20)
			for _, key := range open {
				testkit.Hits(t, user.limiter, 3, key, time.Hour, 10)
			}
			used := testkit.Keys(srv)
			r := rand.New(rand.NewPCG(8, 8))
			broken, removed := 0, 0
			for i := range max(testkit.Fewer(300), 100) { // what fewer leave is hardly ever due
				p := start[uint16](t, srv, cfg)
				for j := range 5 {
					testkit.Hits(t, p.limiter, 1, fmt.Sprint("orphan:", i, ":", j), time.Second, 10)
				}
				p.end()
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				names := srv.Keys() // in the LIST, all have expired, and others do not exist
				for _, name := range srv.Keys() {
					names = append(names, name+"0", name[:len(name)/2])
				}
				list := listOf(t, append(names, "", "never"))
				fault := mockserver.Fault{Op: codec.OpList, Replace: list}
				switch r.IntN(5) {
				case 1:
					fault.Replace = list[:r.IntN(len(list)-1)+1]
				case 2:
					list[9+r.IntN(len(list)-9)] ^= byte(1 + r.IntN(255))
				case 3:
					fault = mockserver.Fault{Op: codec.OpList, Disconnect: true}
				case 4:
					fault.Replace = nil // the list of the server
				}
				undo := srv.Inject(fault)
				result, err := sweeper.Sweep(t.Context(), false)
				removed += result[0].Removed
				undo()
				if err != nil {
					broken++
					sweeper.Sweep(t.Context(), false) // orphans expire without a LIST that is complete
				}
				require.Subset(t, testkit.Keys(srv), used)
			}
			for _, key := range open {
				n, err := user.limiter.Get(t.Context(), key, time.Hour)
				require.NoError(t, err)
				require.EqualValues(t, 3, n, key)
			}
			require.Greater(t, broken, 30)
			require.Greater(t, removed, 50)
			user.end()
			start[uint16](t, srv, cfg)
			time.Sleep(3*time.Hour + sweepTime)
			require.Equal(t, []string{"somebody's"}, testkit.Keys(srv))
			n, _ := srv.Counter("somebody's")
			require.EqualValues(t, 7, n)
			require.Zero(t, srv.Expired())
		})
	}
}

// hidden are ways in which a LIST can hide foreign records. Each returns the names of the LIST, given
// those of our records and of the foreign ones.
var hidden = map[string]func(ours, foreign []string) []string{
	"nothing is listed": func(_, _ []string) []string { return nil },
	"left out":          func(ours, _ []string) []string { return ours },
	"garbled": func(ours, foreign []string) []string {
		for _, name := range foreign {
			ours = append(ours, strings.Repeat("\xff", len(name)))
		}
		return ours
	},
	"names that do not exist": func(ours, foreign []string) []string {
		for i := range foreign {
			ours = append(ours, fmt.Sprint(ours[0], i))
		}
		return ours
	},
	"our names twice": func(ours, foreign []string) []string { return append(ours, ours[:len(foreign)]...) },
	"the leader's name twice": func(ours, foreign []string) []string {
		return append(ours, slices.Repeat([]string{sweep.LeaderKey}, len(foreign))...)
	},
}

func TestServerWithHiddenForeignRecordsIsNotParked(t *testing.T) {
	for name, names := range hidden {
		for _, busy := range []bool{false, true} {
			testkit.Bubble(t, fmt.Sprintf("%s/busy %v", name, busy), func(t *testing.T) {
				srv := testkit.InMemory(t, mockserver.WithRealCollector(), mockserver.WithHazard(mockserver.GarbledList, busy))
				foreign := []string{"somebody's", "jobs"}
				for _, name := range foreign {
					srv.Set(name, 7, 24*time.Hour)
				}
				first := start[uint16](t, srv, throttr.Config{Parking: throttr.ParkingNever})
				for _, key := range keys(20) {
					testkit.Hits(t, first.limiter, 1, key, time.Minute, 100)
				}
				srv.Delete(sweep.LeaderKey)
				hide := func() (undo func()) {
					ours := slices.DeleteFunc(srv.Keys(), func(name string) bool { return slices.Contains(foreign, name) })
					return srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: listOf(t, names(ours, foreign))})
				}
				undo := hide()
				p := start[uint16](t, srv, throttr.Config{})
				scale, n := time.Minute, 20
				if busy {
					scale, n = time.Second, 10_000
				}
				r := rand.New(rand.NewPCG(21, 21))
				for range 4 {
					p.hit(r, keys(n), scale, 20*time.Millisecond, 100)
				}
				for range testkit.Fewer(200) {
					time.Sleep(500 * time.Millisecond)
					undo()
					undo = hide()
					require.False(t, p.client.Stats().Servers[0].Parked)
				}
				require.NotContains(t, srv.Keys(), "")
				require.NotZero(t, srv.Requests(codec.OpList))
				p.end()
			})
		}
	}
}
