package sweep

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

func sweepers(t *testing.T, srv *mockserver.Server, n int) (all []*Sweeper) {
	for range n {
		calls := conn.NewCalls(conn.SizeOf(srv.ValueSize()))
		all = append(all, New(Options{Server: connect(t, srv, calls), Calls: calls, MaxInFlight: 512}))
	}
	return all
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
				srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for _, s := range sweepers(t, srv, 2) {
					l := s.o.Server.(*link)
					l.neverParks = true
					cl := s.o.Calls.Get()
					cl.Insert(conn.Insert{Key: []byte(LeaderKey), Quota: 7, TTL: ttl})
					_, err := s.do(ctx, cl)
					require.NoError(t, err)
					s.o.Inspect = kept(time.Hour)
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
			srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""), mockserver.WithValueSize(size))
			s := sweepers(t, srv, 1)[0]
			s.o.Inspect = kept(time.Hour)
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

// silent is a Server that is connected to later, and does not respond.
type silent struct {
	*link
	connected chan struct{}
}

func (s silent) Connected() <-chan struct{} { return s.connected }

func (s silent) Do(ctx context.Context, _ *conn.Call) (done, sent bool, err error) {
	<-ctx.Done()
	return true, true, ctx.Err()
}

// A client may start long before its server. Its first windows wait for the decision all the same (H12), for a second.
func TestTheDecisionIsAwaitedFromTheFirstConnectionOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := conn.NewCalls(nil)
		server := silent{&link{}, make(chan struct{})}
		s := New(Options{Server: server, Calls: calls, MaxInFlight: 512})
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
	l := &link{}
	s := New(Options{Server: l})
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
	l.parked = true
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
	all := slices.Repeat([]listed{{name: []byte("k")}}, 1000)
	all = append(all, slices.Repeat([]listed{{name: make([]byte, 255)}}, 100)...)
	total := 0
	for chunk := range chunks(all, 256, maxChunkBytes) {
		require.LessOrEqual(t, len(chunk), 256)
		size := 0
		for _, name := range chunk {
			frame, err := codec.Update[uint64]{Key: name}.AppendBinary(nil)
			require.NoError(t, err)
			size += len(frame)
		}
		require.LessOrEqual(t, size, 8096)
		total += len(chunk)
	}
	require.Equal(t, 1100, total)
}

// kept knows all records and leaves them, but wants sweeps at an interval.
func kept(interval time.Duration) Inspect {
	return func([]byte, uint64) Decision { return Decision{Over: true, Interval: interval} }
}

// With so many records, the pauses that let others' requests pass, and those between two LISTs,
// would add up to more than the interval.
func TestManyRecordsDoNotMakeSweepsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 5 * time.Second
		records := 120_000
		if race.Enabled {
			records /= 10
		}
		srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""))
		for i := range records {
			srv.Set(fmt.Sprint("record:", i), 1, time.Hour)
		}
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: 5 * time.Millisecond})
		srv.Inject(mockserver.Fault{Op: codec.OpList, Delay: 900 * time.Millisecond})
		calls := conn.NewCalls(conn.SizeOf(2))
		l := connect(t, srv, calls)
		l.neverParks = true
		s := New(Options{Server: l, Inspect: kept(interval), Calls: calls, MaxInFlight: 512})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		s.Run(ctx)
		require.GreaterOrEqual(t, len(l.lists), 6)
		for i := 1; i < len(l.lists); i++ {
			require.LessOrEqual(t, l.lists[i].Sub(l.lists[i-1]), interval)
		}
	})
}

func TestSweepsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sweeperOfPairs(t, 2, false)
		var lines bytes.Buffer
		s.o.Server.(*link).log = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log := func() string {
			s.Sweep(t.Context(), time.Now())
			defer lines.Reset()
			_, line, _ := strings.Cut(lines.String(), " ")
			return strings.TrimSpace(line)
		}
		const message = `msg="throttr: server swept" `
		require.Equal(t, "level=INFO "+message+"records=4 removed=4 kept=0 foreign=1 took=1s", log())
		require.Equal(t, "level=DEBUG "+message+"records=0 removed=0 kept=0 foreign=1 took=0s", log())
		p.srv.Set("pair:1:a", 0, time.Hour)
		p.fail = "pair:1"
		require.Equal(t, `level=WARN msg="throttr: sweep failed" records=1 removed=0 kept=0 foreign=1 took=1s error="a pair that can't be removed"`, log())
	})
}

// failedLists returns how often a server is listed in a while if each LIST takes so long and is
// malformed.
func failedLists(t *testing.T, takes, while time.Duration) (n int) {
	srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""))
	srv.Inject(mockserver.Fault{Op: codec.OpList, Delay: takes, Replace: []byte{0xff}})
	s := sweepers(t, srv, 1)[0]
	s.o.Server.(*link).neverParks = true
	s.o.Inspect = kept(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), while)
	defer cancel()
	s.Run(ctx)
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
		srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""))
		for i := range 100 {
			srv.Set(fmt.Sprint("record:", i), 1, time.Hour)
		}
		s := sweepers(t, srv, 1)[0]
		s.o.Inspect, s.most = kept(time.Hour), 99
		r, err := s.Sweep(t.Context(), time.Now())
		require.NoError(t, err)
		require.Equal(t, 100, r.Records)
		require.Equal(t, 99, r.Kept)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Run(ctx)
		require.NotZero(t, s.Stats().Sweeps)
		require.False(t, s.o.Server.Parked())
		s.most = 1000
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Run(ctx)
		require.True(t, s.o.Server.Parked())

		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second / 2})
		s.o.Inspect, s.o.MaxInFlight = kept(time.Second), 40 // three chunks
		start := time.Now()
		_, err = s.Sweep(t.Context(), start.Add(time.Hour))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), 2*pauseFactor*time.Second/2, "there is time")
	})
}
