package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/mockserver"
)

// serve returns a Server that keeps few connections to srv, and does not retry.
func serve(t *testing.T, srv *mockserver.Server, calls *conn.Calls, mode parking.Mode, log io.Writer) Server {
	p := pool.New(pool.Options{
		Target: dial.Target{Server: "server:1", Calls: calls, Dialer: &dial.Dialer{
			Timeout: time.Minute,
			Dial:    func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
		}},
		MaxConns: 4, MaxInFlight: 512, MaxQueued: 1 << 16, MaxRetries: -1, MaxResponse: 4 << 20,
		StallTimeout: time.Minute, MaxConnAge: -1, MaxConnIdle: -1, HealthInterval: time.Hour,
		MinBackoff: time.Second, MaxBackoff: time.Second, Parking: mode,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	t.Cleanup(p.Close)
	require.NoError(t, p.Connect(t.Context()))
	return p
}

// sweeperOf returns a sweeper that knows all records of a server and leaves them, but wants sweeps at an interval.
func sweeperOf(t *testing.T, srv *mockserver.Server, mode parking.Mode, interval time.Duration) *Sweeper {
	calls := conn.NewCalls(conn.SizeOf(srv.ValueSize()))
	return New(Options{
		Server: serve(t, srv, calls, mode, io.Discard), Calls: calls,
		Inspect: func([]byte, uint64) Decision { return Decision{Over: true, Interval: interval} },
	})
}

// inMemory starts a server.
func inMemory(t *testing.T, opts ...mockserver.Option) *mockserver.Server {
	return mockserver.RunT(t, append(opts, mockserver.WithAddr("memory", ""))...)
}

// A record of somebody else with the leader's key would make each sweeper believe that another
// one has just swept.
func TestEachSweepsIfTheLeadersRecordIsForeign(t *testing.T) {
	for name, ttl := range map[string]conn.TTL{
		"unit": {Amount: 100, Unit: codec.Hours},
		"TTL":  {Amount: 65_535, Unit: codec.Seconds},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for range 2 {
					s := sweeperOf(t, srv, parking.Never, time.Hour)
					cl := s.o.Calls.Get()
					cl.Insert(conn.Insert{Key: []byte(LeaderKey), Quota: 7, TTL: ttl})
					_, err := s.do(ctx, cl)
					require.NoError(t, err)
					go s.Run(ctx)
				}
				<-ctx.Done()
				synctest.Wait()
				require.InDelta(t, 2*time.Minute/usualInterval, srv.Requests(codec.OpList), 2)
				n, _ := srv.Counter(LeaderKey)
				require.EqualValues(t, 7, n, "it was left alone")
			})
		})
	}
}

// The number and the TTL of a term fit a value of the server. After the largest number, sweeps must go on.
func TestTermsOfEachValueSize(t *testing.T) {
	for size := 1; size <= 8; size *= 2 {
		synctest.Test(t, func(t *testing.T) {
			srv := inMemory(t, mockserver.WithValueSize(size))
			s := sweeperOf(t, srv, parking.Never, time.Hour)
			most := s.o.Calls.Size().Largest()
			for sweeps, term := range []struct{ before, after uint64 }{
				{0, 2}, {most - 3, most - 1}, {most - 2, 0}, {most - 1, 0}, {most, 2},
			} {
				if sweeps > 0 {
					cl := s.o.Calls.Get()
					old := conn.Update{Attribute: codec.TimeToLive, Change: codec.Patch, Value: 20, Key: []byte(LeaderKey)}
					cl.Update(old)
					cl.Update(conn.Update{Change: codec.Patch, Value: term.before, Key: old.Key})
					_, err := s.do(t.Context(), cl)
					require.NoError(t, err)
				}
				s.step(t.Context())
				require.EqualValues(t, sweeps+1, srv.Requests(codec.OpList))
				n, _ := srv.Counter(LeaderKey)
				require.EqualValues(t, term.after, n, "%d bytes, %+v", size, term)
			}
		})
	}
}

// fake is a Server that is connected to later, and does not respond.
type fake struct {
	Server
	connected chan struct{}
	parked    bool
}

// Connected implements Server, as the methods below do.
func (f *fake) Connected() <-chan struct{} { return f.connected }

// MayPark says that Park has been called.
func (f *fake) MayPark() bool { return true }

// Parked returns parked.
func (f *fake) Parked() bool { return f.parked }

// Do waits for ctx.
func (f *fake) Do(ctx context.Context, _ *conn.Call) (done, sent bool, err error) {
	<-ctx.Done()
	return true, true, ctx.Err()
}

// A client may start long before its server. Its first windows wait for the decision all the same (H12), for a second.
func TestTheDecisionIsAwaitedFromTheFirstConnectionOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fake{connected: make(chan struct{})}
		s := New(Options{Server: server, Calls: conn.NewCalls(nil)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		waited, err := s.AwaitDecision(ctx)
		require.NoError(t, err)
		require.False(t, waited, "no window can be opened")
		time.Sleep(time.Hour)
		close(server.connected)
		for _, want := range []time.Duration{maxDecide, 0} {
			begun := time.Now()
			waited, err := s.AwaitDecision(ctx)
			require.NoError(t, err)
			require.Equal(t, want > 0, waited)
			require.Equal(t, want, time.Since(begun))
		}
	})
}

func TestIntervalIsWhatTheRecordsNeed(t *testing.T) {
	server := &fake{}
	s := New(Options{Server: server})
	require.Equal(t, usualInterval, s.interval(), "nothing is known")
	s.Need(20 * time.Second)
	require.Equal(t, usualInterval, s.interval())
	s.listing = time.Second
	require.Equal(t, 16*time.Second, s.interval(), "a slow server is swept less often, but often enough")
	s.last.interval = 5 * time.Second
	require.Equal(t, 4*time.Second, s.interval(), "others' records need it")
	s.Need(2 * time.Second)
	s.Need(time.Minute)
	require.Equal(t, 1600*time.Millisecond, s.interval())
	s.Need(time.Millisecond)
	require.Equal(t, minInterval, s.interval())
	server.parked = true
	require.Equal(t, parkedInterval, s.interval(), "nothing expires")
	s.listing = 2 * time.Second
	require.Equal(t, 100*time.Second, s.interval(), "a slow server is swept less often")
	s.listing = time.Minute
	require.Equal(t, longestInterval, s.interval())
}

func TestPausesLeaveTimeForOthersButEndInTime(t *testing.T) {
	const took = 10 * time.Millisecond
	require.Equal(t, 4*took, pauseAfter(took, time.Minute, 10))
	require.Equal(t, 2*took, pauseAfter(took, 30*took, 10), "a third of the time that is left")
	require.Zero(t, pauseAfter(took, 10*took, 10))
	require.Zero(t, pauseAfter(took, -time.Second, 10))
}

func TestBatchesAreBounded(t *testing.T) {
	all := slices.Repeat([]listed{{name: "k"}}, 1000)
	all = append(all, slices.Repeat([]listed{{name: strings.Repeat("k", 255)}}, 100)...)
	total := 0
	for len(all) > 0 {
		chunk, others := cut(all, 256, maxChunkBytes)
		all = others
		require.LessOrEqual(t, len(chunk), 256)
		size := 0
		for _, l := range chunk {
			frame, err := codec.Update[uint64]{Key: []byte(l.name)}.AppendBinary(nil)
			require.NoError(t, err)
			size += len(frame)
		}
		require.LessOrEqual(t, size, 8096)
		total += len(chunk)
	}
	require.Equal(t, 1100, total)
}

// With so many records, the pauses that let others' requests pass, and those between two LISTs,
// would add up to more than the interval.
func TestManyRecordsDoNotMakeSweepsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, records = 5 * time.Second, 3_000
		var lists []time.Time
		srv := inMemory(t, mockserver.WithObserver(func(e mockserver.Exec) {
			if e.Op == codec.OpList {
				lists = append(lists, time.Now())
			}
		}))
		for i := range records {
			srv.Set(fmt.Sprint("record:", i), 1, time.Hour)
		}
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: 100 * time.Millisecond})
		srv.Inject(mockserver.Fault{Op: codec.OpList, Delay: 900 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		sweeperOf(t, srv, parking.Never, interval).Run(ctx)
		require.GreaterOrEqual(t, len(lists), 6)
		for i := 1; i < len(lists); i++ {
			require.LessOrEqual(t, lists[i].Sub(lists[i-1]), interval)
		}
	})
}

func TestSweepsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		p, s := sweeperOfPairs(t, 2, false, &lines)
		lines.Reset()
		log := func() string {
			s.Sweep(t.Context(), time.Now())
			defer lines.Reset()
			_, line, _ := strings.Cut(lines.String(), " ")
			return strings.TrimSpace(line)
		}
		const message = `msg="throttr: server swept" server=server:1 `
		require.Equal(t, "level=INFO "+message+"records=4 removed=4 kept=0 foreign=1 took=1s", log())
		require.Equal(t, "level=DEBUG "+message+"records=0 removed=0 kept=0 foreign=1 took=0s", log())
		for _, name := range []string{"pair:1:a", "pair:2:a", "pair:2:b"} {
			p.srv.Set(name, 0, time.Hour)
		}
		p.fail = "pair:1" // that ends no other removal
		require.Equal(t, `level=WARN msg="throttr: sweep failed" server=server:1 records=3 removed=2 kept=0 foreign=1 took=1s error="a pair that can't be removed"`, log())
	})
}

// failedLists returns how often a server is listed in a while if each LIST takes so long and is
// malformed.
func failedLists(t *testing.T, takes, while time.Duration) (n int) {
	srv := inMemory(t)
	srv.Inject(mockserver.Fault{Op: codec.OpList, Delay: takes, Replace: []byte{0xff}})
	ctx, cancel := context.WithTimeout(t.Context(), while)
	defer cancel()
	sweeperOf(t, srv, parking.Never, time.Hour).Run(ctx)
	return srv.Requests(codec.OpList)
}

func TestListsThatFailAreRepeatedAsTheirCostAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Greater(t, failedLists(t, time.Millisecond, 10*time.Minute), 100)
		require.LessOrEqual(t, failedLists(t, time.Second, 10*time.Minute), 25, "4 in 50 s, at most")
		require.LessOrEqual(t, failedLists(t, 4*time.Second, 20*time.Minute), 12)
	})
}

func TestServerWithTooManyRecordsIsSweptInPartAndNotParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		for i := range 100 {
			srv.Set(fmt.Sprint("record:", i), 1, time.Hour)
		}
		s := sweeperOf(t, srv, parking.Automatic, time.Hour)
		s.most = 99
		r, err := s.Sweep(t.Context(), time.Now())
		require.NoError(t, err)
		require.Equal(t, 100, r.Records)
		require.Equal(t, 99, r.Kept)
		for _, most := range []int{99, 1000} {
			s.most = most
			sweeps := s.Stats().Sweeps
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			s.Run(ctx)
			cancel()
			require.Greater(t, s.Stats().Sweeps, sweeps)
			require.Equal(t, most > 100, s.o.Server.Parked())
		}
	})
}

func TestSweepsLeaveTimeForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		for i := range 100 {
			srv.Set(fmt.Sprint("record:", i), 1, time.Hour)
		}
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second / 2})
		s := sweeperOf(t, srv, parking.Always, time.Second)
		s.chunk = 40 // three chunks
		start := time.Now()
		_, err := s.Sweep(t.Context(), start.Add(time.Hour))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), 2*pauseFactor*time.Second/2, "there is time")
	})
}

// What travels together leaves others room in the queue of a connection, and does not hold them up for long.
func TestChunksAreBoundedBySettings(t *testing.T) {
	for o, want := range map[[2]int]int{{512, 1 << 16}: maxChunk, {8, 1 << 16}: minChunk, {100, 1 << 16}: 100, {512, 64}: 8, {8, 1}: 1} {
		require.Equal(t, want, New(Options{MaxInFlight: o[0], MaxQueued: o[1]}).chunk, "%v", o)
	}
}

// A sweep that is broken off for the next one has not looked at all records.
func TestSweepsThatAreBrokenOffDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		for i := range 100 {
			srv.Set(fmt.Sprint("record:", i), 1, time.Hour)
		}
		finish := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Skip: 1, Delay: time.Second / 2})
		s := sweeperOf(t, srv, parking.Never, 2*time.Second)
		s.chunk = 10
		go s.Run(t.Context())
		time.Sleep(20 * time.Second)
		require.Greater(t, srv.Requests(codec.OpList), 3)
		require.Zero(t, s.Stats().Sweeps)
		finish()
		time.Sleep(20 * time.Second)
		require.Greater(t, s.Stats().Sweeps, uint64(3))
	})
}

// endless is a Server whose LISTs do not end.
type endless struct{ Server }

// Scan implements Server.
func (e endless) Scan(ctx context.Context, r codec.Request, decode func(src []byte) (n int, done bool, err error),
	take func() (more bool)) (sent bool, err error) {
	if _, err := e.Server.Scan(ctx, r, decode, take); err != nil {
		return true, err
	}
	<-ctx.Done()
	return true, ctx.Err()
}

// A server that sends a byte now and then must not keep the sweeper from removing what it has listed.
func TestAListEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sweeperOfPairs(t, 10, false, io.Discard)
		s.o.Server = endless{s.o.Server}
		start := time.Now()
		r, err := s.Sweep(t.Context(), start)
		require.ErrorIs(t, err, conn.ErrStalled)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "that of ctx has not passed")
		require.Equal(t, maxListing+time.Second, time.Since(start), "removals take a second")
		require.Equal(t, 20, r.Removed)
		require.Equal(t, []string{"foreign"}, p.srv.Keys())
	})
}

// pairs inspects and removes records that come in pairs: "pair:1:a" and "pair:1:b". They are
// removed together, in steps that take a second, if both are over: their count is 0 then, and their TTL at most an
// hour.
type pairs struct {
	srv  *mockserver.Server
	fail string // the target whose removal fails

	mu           sync.Mutex // guards what follows
	removing     int        // calls under way
	mostRemoving int
	mostTargets  int
	targets      []string // in the order of the calls
}

func (p *pairs) inspect(name []byte, left uint64) Decision {
	if left > uint64(time.Hour/time.Second) || !bytes.HasPrefix(name, []byte("pair:")) {
		return Decision{}
	}
	return Decision{Interval: time.Hour, Over: true, Target: string(name[:len(name)-2])}
}

func (p *pairs) remove(ctx context.Context, targets []string) (records int, err error) {
	p.mu.Lock()
	p.removing++
	p.mostRemoving = max(p.mostRemoving, p.removing)
	p.mostTargets = max(p.mostTargets, len(targets))
	p.targets = append(p.targets, targets...)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.removing--
		p.mu.Unlock()
	}()
	if !pause(ctx, time.Second) {
		return 0, ctx.Err()
	}
	for _, target := range targets {
		a, _ := p.srv.Counter(target + ":a")
		b, _ := p.srv.Counter(target + ":b")
		switch {
		case target == p.fail:
			err = errPair
		case a == 0 && b == 0:
			p.srv.Delete(target + ":a")
			p.srv.Delete(target + ":b")
			records += 2
		}
	}
	return records, err
}

var errPair = errors.New("a pair that can't be removed")

// sweeperOfPairs returns a server with pairs that are over, and a sweeper for them.
func sweeperOfPairs(t *testing.T, n int, dryRun bool, log io.Writer) (*pairs, *Sweeper) {
	srv := inMemory(t)
	for i := range n {
		srv.Set(fmt.Sprintf("pair:%d:a", i), 0, time.Hour)
		srv.Set(fmt.Sprintf("pair:%d:b", i), 0, time.Hour)
	}
	srv.Set("foreign", 1, time.Hour)
	p := &pairs{srv: srv}
	calls := conn.NewCalls(conn.SizeOf(2))
	s := New(Options{
		Server: serve(t, srv, calls, parking.Never, log), Inspect: p.inspect, Remove: p.remove, Calls: calls,
		DryRun: dryRun,
	})
	return p, s
}

func TestRemoveIsGivenEachTargetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		p, s := sweeperOfPairs(t, n, false, io.Discard)
		p.srv.Set("pair:7:b", 1, 2*time.Hour) // in use
		start := time.Now()
		r, err := s.Sweep(t.Context(), start)
		require.NoError(t, err)
		require.Equal(t, 2*n-2, r.Removed, "Sweep waits for the removals")
		require.Equal(t, 1, r.Foreign)
		require.ElementsMatch(t, []string{"pair:7:a", "pair:7:b", "foreign"}, p.srv.Keys())
		require.Len(t, p.targets, n)
		slices.Sort(p.targets)
		require.Len(t, slices.Compact(p.targets), n)
		require.LessOrEqual(t, p.mostTargets, maxChunk)
		require.Greater(t, p.mostRemoving, 10, "the next chunk is looked at while one is removed")
		require.Less(t, time.Since(start), 2*time.Second)
		require.EqualValues(t, 2*n-2, s.Stats().Removed)
	})
}

func TestRemovalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sweeperOfPairs(t, 1000, false, io.Discard)
		s.chunk = 2 // so that there are many chunks
		r, err := s.Sweep(t.Context(), time.Now())
		require.NoError(t, err)
		require.Equal(t, 2000, r.Removed)
		require.Equal(t, maxRemovals, p.mostRemoving)
	})
}

func TestRemovalsEndWithTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sweeperOfPairs(t, 10, false, io.Discard)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := s.Sweep(ctx, time.Now())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, p.removing)
		require.Len(t, p.srv.Keys(), 21)
	})
}

// A LIST that runs while records are removed may have names twice (H14). An entry that is garbled, and so says that a
// record of ours is a buffer, hides the record neither after it nor before it. A dry run changes nothing.
func TestNamesThatAreListedTwiceCountOnce(t *testing.T) {
	for _, buffers := range [][2]bool{{false, false}, {true, false}, {false, true}} {
		synctest.Test(t, func(t *testing.T) {
			p, s := sweeperOfPairs(t, 10, true, io.Discard)
			var entries []codec.ListEntry[uint16]
			for _, buffer := range buffers {
				for _, name := range p.srv.Keys() {
					entries = append(entries, codec.ListEntry[uint16]{
						Key: []byte(name), Unit: codec.Seconds, Expires: uint64(len(entries)), Buffer: buffer,
					})
				}
			}
			list, err := codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{entries}}.AppendBinary(nil)
			require.NoError(t, err)
			p.srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: list})
			r, err := s.Sweep(t.Context(), time.Now())
			require.NoError(t, err)
			require.Equal(t, []int{20, 20}, []int{r.Records, r.Removed})
			require.True(t, r.Foreign == 1 || buffers != [2]bool{}, "%d foreign records", r.Foreign)
			require.Empty(t, p.targets)
			require.Len(t, p.srv.Keys(), 21)
		})
	}
}
