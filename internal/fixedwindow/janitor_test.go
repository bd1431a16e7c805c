package fixedwindow

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

// On a server whose records expire as on a real one, the records of many keys are removed in time,
// by the client that has made them. It takes 18 requests for each key.
func TestJanitorRemovesTheRecordsOfIdleKeys(t *testing.T) {
	for _, test := range []struct {
		size  int
		scale time.Duration
	}{{1, time.Second}, {2, time.Second}, {2, 10 * time.Second}, {4, 200 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%v, %d bytes", test.scale, test.size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := 3000
				if race.Enabled {
					keys = 600 // it takes some ten times as long
				}
				srv, requests := observed(t, mockserver.WithValueSize(test.size), mockserver.WithRealCollector())
				o := options(t, srv)
				o.MaxWindows = 4 * keys
				b := start(t, o)
				for range 2 { // so that each key has two records
					for i := range keys {
						hits(t, b, 1, fmt.Sprint(i), fixed(test.scale, 1))
					}
					time.Sleep(test.scale + time.Millisecond)
				}
				require.Equal(t, 2*keys, len(windowKeys(srv)))
				require.Equal(t, keys, b.Stats().Records)
				requests.take()
				hit := b.answered.Load()
				// The records are idle until the TTL is below Doom, and then removed within some
				// guards.
				bands, ok := slot.BandsFor(test.scale, api.MaxValue(test.size))
				require.True(t, ok)
				left := time.Duration(bands.Margin-bands.Doom) * bands.Unit
				time.Sleep(left - 2*bands.Unit)
				require.NotZero(t, len(windowKeys(srv)))
				time.Sleep(3*bands.Unit + 4*bands.Guard + time.Second)
				require.Zero(t, len(windowKeys(srv)))
				require.Zero(t, srv.Expired())
				require.Zero(t, b.Stats())
				total := 0
				for _, n := range requests.take() {
					total += n
				}
				require.LessOrEqual(t, total, 18*keys)
				require.Less(t, b.answered.Load()-hit, uint64(keys/6), "keys that are due at about the same time share calls")
			})
		})
	}
}

func TestRecordsOfAClientThatHasDiedAreRemovedByOneThatOpenedAWindowBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t, mockserver.WithRealCollector())
		var died atomic.Bool
		o := options(t)
		o.Servers = []Server{newPool(t, o.Calls, parking.Never, func(ctx context.Context) (net.Conn, error) {
			if died.Load() {
				return nil, mockserver.ErrRefused
			}
			return srv.Dial(ctx)
		})}
		watcher, dies := client(t, srv), start(t, o)
		hits(t, watcher, 1, "k", fixed(time.Second, 1))
		time.Sleep(time.Second + time.Millisecond)
		hits(t, dies, 1, "k", fixed(time.Second, 1))
		died.Store(true)
		srv.Disconnect()
		bands, _ := slot.BandsFor(time.Second, math.MaxUint16)
		time.Sleep(time.Duration(bands.Top-bands.Doom)*bands.Unit + 5*time.Second)
		require.Len(t, windowKeys(srv), 2, "the janitor is dead, and the watcher waits")
		require.Equal(t, 1, watcher.Stats().Records)
		time.Sleep(time.Duration(bands.Doom-bands.Watch) * bands.Unit)
		require.Empty(t, windowKeys(srv))
		require.Zero(t, srv.Expired())
		require.Zero(t, watcher.Stats().Records)
	})
}

// A late hit makes the free slot beside an open window over. So the next window would need an
// INSERT.
func TestJanitorFreesASlotBesideAnOpenWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = 10 * time.Second, 10
		srv, requests := observed(t)
		b := client(t, srv)
		for range 2 {
			hits(t, b, 1, "k", fixed(scale, limit))
			time.Sleep(scale + time.Millisecond)
		}
		hits(t, b, 1, "k", fixed(scale, limit))
		names := namesOf(t, "k", scale, 2)
		quota, _ := srv.Counter(names[slot.B])
		require.EqualValues(t, 65535, quota, "A has the window, and B is free")
		ttl, _ := srv.TTL(names[slot.B])
		srv.Set(names[slot.B], 65534, ttl)
		requests.take()
		hits(t, client(t, srv), 1, "k", fixed(scale, limit)) // its lookup shows it
		time.Sleep(2 * time.Second)
		quota, _ = srv.Counter(names[slot.B])
		require.EqualValues(t, 65535, quota)
		time.Sleep(scale)
		hits(t, b, 1, "k", fixed(scale, limit))
		require.Zero(t, requests.take()[codec.OpInsert])
	})
}

// While the janitor looks a key up that has no records any more, a hit creates one. The janitor must not forget the
// key.
func TestJanitorRemovesWhatIsCreatedWhileItLooks(t *testing.T) {
	for _, insert := range []time.Duration{0, 100 * time.Millisecond} { // it ends before the lookup does, or after it
		synctest.Test(t, func(t *testing.T) {
			const scale = 10 * time.Second
			srv := inMemory(t)
			b := client(t, srv)
			hits(t, b, 1, "k", fixed(scale, 1))
			name := namesOf(t, "k", scale, 2)[slot.A]
			srv.Delete(name)
			bands, _ := slot.BandsFor(scale, math.MaxUint16)
			idle := time.Duration(bands.Margin-bands.Doom) * bands.Unit
			time.Sleep(idle - 50*time.Millisecond)
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: name, Delay: 100 * time.Millisecond})
			srv.Inject(mockserver.Fault{Op: codec.OpInsert, Key: name, Delay: insert})
			hits(t, b, 1, "k", fixed(scale, 1))
			time.Sleep(idle / 2)
			require.Len(t, windowKeys(srv), 1)
			require.Equal(t, 1, b.Stats().Records)
			time.Sleep(idle/2 + scale + 5*time.Second)
			require.Empty(t, windowKeys(srv))
			require.Zero(t, b.Stats().Records)
		})
	}
}

// The janitor does not look up a key whose own action is under way: it can't act on what it would see.
func TestJanitorLeavesAKeyAloneWhoseActionIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 10 * time.Second
		srv, requests := observed(t)
		b := client(t, srv)
		hits(t, b, 1, "k", fixed(scale, 1))
		bands, _ := slot.BandsFor(scale, math.MaxUint16)
		time.Sleep(time.Duration(bands.Margin-bands.Doom)*bands.Unit - 50*time.Millisecond)
		requests.take()
		srv.Inject(mockserver.Fault{Op: codec.OpInsert, Delay: 400 * time.Millisecond})
		hits(t, b, 1, "k", fixed(scale, 1)) // opens the other slot; meanwhile, the janitor is due
		time.Sleep(time.Second)
		require.Equal(t, 2, requests.take()[codec.OpQuery], "those of the hit")
	})
}

// A record that can't be removed in time is tried four times a second, however short its windows are.
func TestJanitorPausesBeforeItTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 10 * time.Millisecond
		srv, requests := observed(t)
		hits(t, client(t, srv), 1, "k", fixed(scale, 1))
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: 3 * time.Millisecond})
		bands, _ := slot.BandsFor(scale, math.MaxUint16)
		time.Sleep(time.Duration(bands.Top-bands.Doom) * bands.Unit)
		requests.take()
		time.Sleep(10 * time.Second)
		require.Less(t, requests.take()[codec.OpQuery], 1000)
		require.Len(t, windowKeys(srv), 1)
	})
}

// The server is too slow to look up all keys within a guard. The janitor removes them, or Close does.
func TestRecordsOfManyKeysAreRemovedFromSlowServers(t *testing.T) {
	for _, scale := range []time.Duration{time.Second, 10 * time.Second} {
		for _, idle := range []time.Duration{scale, 2 * time.Minute} {
			t.Run(fmt.Sprintf("%v, closed after %v", scale, idle), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := inMemory(t, mockserver.WithServiceTime(time.Millisecond))
					b := open(options(t, srv))
					for i := range 300 {
						hits(t, b, 1, fmt.Sprint(i), fixed(scale, 1))
					}
					time.Sleep(idle)
					require.Equal(t, idle > scale, len(windowKeys(srv)) == 0)
					took := closing(b)
					require.True(t, idle > scale || took > closeStall, "it goes on as long as the server responds")
					require.Less(t, took, closeWait+closeTimeout)
					require.Empty(t, windowKeys(srv))
					require.Zero(t, srv.Expired())
				})
			})
		}
	}
}

// Close does not wait for a sweep, which others can make.
func TestCloseDoesNotWaitForASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t, mockserver.WithServiceTime(100*time.Microsecond), mockserver.WithRealCollector())
		setOrphans(t, srv, 20_000, time.Second, 4900*time.Millisecond, 0)
		b := New(options(t, srv))
		hits(t, b, 1, "a", fixed(time.Minute, 1))
		for srv.Requests(codec.OpPurge) < 200 {
			time.Sleep(10 * time.Millisecond)
		}
		start := time.Now()
		b.Close()
		require.Less(t, time.Since(start), time.Second)
	})
}

// closing closes a backend and returns how long that takes.
func closing(b *Backend) time.Duration {
	began := time.Now()
	b.Close()
	return time.Since(began)
}

// While Close waits for windows, other records become doomed, or are being removed.
func TestCloseRemovesWhatTheJanitorWasAboutToRemove(t *testing.T) {
	bands, _ := slot.BandsFor(time.Second, math.MaxUint16)
	doomed := time.Duration(bands.Top-bands.Doom) * bands.Unit
	for before := -2 * time.Second; before <= 3*time.Second; before += 300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			srv := inMemory(t)
			b := open(options(t, srv))
			for i := range 300 { // more than one chunk
				hits(t, b, 1, fmt.Sprint(i), fixed(time.Second, 1))
			}
			time.Sleep(doomed + before)
			hits(t, b, 1, "short", fixed(time.Second, 1))
			time.Sleep(100 * time.Millisecond)
			require.LessOrEqual(t, closing(b), closeWait+closeTimeout)
			require.Zero(t, len(windowKeys(srv)), "closed %v after they were doomed", before)
			require.Zero(t, srv.Expired())
		})
	}
}

// The client that has opened the last window of a key goes on, and opens the next one without an INSERT.
func TestCloseLeavesRecordsToTheClientOfTheLastWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 10 * time.Second
		srv := inMemory(t)
		b, other := open(options(t, srv)), client(t, srv)
		for _, opens := range []*Backend{b, other} {
			hits(t, opens, 1, "k", fixed(scale, 1))
			time.Sleep(scale + time.Millisecond)
		}
		b.Close()
		require.Len(t, windowKeys(srv), 2)
		other.Close()
		require.Empty(t, windowKeys(srv))
	})
}

func TestCloseIsBoundedIfTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b := open(options(t, srv))
		hits(t, b, 1, "over", fixed(time.Second, 1))
		time.Sleep(1100 * time.Millisecond)
		srv.Refuse(true)
		srv.Disconnect()
		require.LessOrEqual(t, closing(b), 3*time.Second)
	})
}

// Keys are begun in as few groups as possible, whose calls travel together: all that there is room for, but no few of
// many.
func TestKeysAreBegunTogether(t *testing.T) {
	p := newPace()
	p.most = 1000
	begin := func(n, want int) {
		t.Helper()
		some, _ := p.begin(n)
		require.Equal(t, want, some)
	}
	begin(800, 800)
	begin(500, 200)
	begin(1, 0)
	p.end(maxBatch-1, 0)
	begin(500, 0)
	begin(100, 100)
	p.end(maxBatch-27, 0)
	begin(500, maxBatch)
	p.end(1000, 0)
	p.most = minPace
	begin(500, minPace)
}

func TestInspectorDecidesAboutSlots(t *testing.T) {
	const size = 1
	r := NewRemover(nil, conn.NewCalls(conn.SizeOf(size)))
	for _, scale := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour} {
		bands, ok := slot.BandsFor(scale, api.MaxValue(size))
		require.True(t, ok)
		interval := sweepInterval(&bands)
		names := slotNames(&bands, "k", "")
		for left, want := range map[uint64]sweep.Decision{
			bands.Top + 1:    {},
			bands.Top:        {Interval: interval},
			bands.Margin:     {Interval: interval},
			bands.Margin - 1: {Interval: interval, Over: true},
			bands.Watch:      {Interval: interval, Over: true},
			bands.Watch - 1:  {Interval: interval, Over: true, Target: string(names[0])},
			0:                {Interval: interval, Over: true, Target: string(names[0])},
		} {
			for _, name := range names {
				require.Equal(t, want, r.Inspect(name, left), "%s with %d", name, left)
			}
		}
		name := names[0]
		for _, other := range []string{string(name[:1]) + "x" + string(name[2:]), "jobs", "throttr:sweeper", "wsA:500µs:k"} {
			require.Zero(t, r.Inspect([]byte(other), 0), other)
		}
	}
}

// The age of the last sweep is known in whole seconds. If intervals were as short, all sweepers of a
// fleet would sweep.
func TestIntervalsOfSweepsAreOverASecond(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		largest := api.MaxValue(size)
		for scale := time.Millisecond; scale < 200*time.Hour; scale += 1 + scale/100*time.Duration(size) {
			for _, whole := range []time.Duration{scale, scale.Round(time.Millisecond), scale.Round(time.Second), scale.Round(time.Minute), scale.Round(time.Hour)} {
				if bands, ok := slot.BandsFor(whole, largest); ok {
					require.Greater(t, sweepInterval(&bands)*8/10, 1300*time.Millisecond, "%v in %d bytes", whole, size)
				}
			}
		}
	}
}

// A sweep that takes longer than records are left to sweeps is broken off, so that the next one finds those first that
// are about to expire.
func TestSlowSweepsRemoveWhatExpiresFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, scale = 5120, 10 * time.Second
		srv := inMemory(t, mockserver.WithRealCollector())
		setOrphans(t, srv, keys, scale, 9*time.Second, 30*time.Second/keys)
		o := options(t, srv)
		o.MaxQueued = 1 << 16 // so that chunks are larger than batches
		h := &hooked{Server: o.Servers[0]}
		h.do = func(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
			if cl.Len() > maxBatch { // it looks at records: at all of them in 20 s
				time.Sleep(500 * time.Millisecond)
			}
			return h.Server.Do(ctx, cl)
		}
		o.Servers[0] = h
		b := New(o)
		defer b.Close()
		hits(t, b, 1, "a", fixed(time.Minute, 1))
		time.Sleep(40 * time.Second)
		require.Zero(t, srv.Expired())
		require.Equal(t, 1, len(windowKeys(srv)), "that of the open window")
	})
}

// A server is so far away that each step towards the removal of a record of short windows is too late. The sweeper
// does not try for ever, as other records need it.
func TestLateTargetsDoNotHoldUpSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		for scale, left := range map[time.Duration]time.Duration{200 * time.Millisecond: 19 * time.Second, 10 * time.Second: 12 * time.Second} {
			setOrphans(t, srv, 300, scale, left, 0)
		}
		srv.Inject(mockserver.Fault{Delay: 60 * time.Millisecond})
		b := sweeping(t, srv)
		time.Sleep(12 * time.Second)
		require.Zero(t, srv.Expired())
		require.Equal(t, 601, len(windowKeys(srv)), "that of the open window, and those that can't be removed in time")
		require.EqualValues(t, 600, b.Stats().Removed)
	})
}

// Only what follows a claim is too late.
func TestClaimsDoNotGoOnForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		setOrphans(t, srv, 1, 200*time.Millisecond, 4*time.Second, 0)
		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Delay: 60 * time.Millisecond})
		o := options(t, srv)
		r := NewRemover(o.Servers[0], o.Calls)
		defer r.Close()
		_, err := r.Remove(t.Context(), windowKeys(srv)[:1])
		require.ErrorIs(t, err, ErrTooLate)
	})
}

// What a server needs for the claims of a batch, and for those of batches at the same time, may be so much that the
// removals would be too late. Counters that are full, as those of charges are, need a step more, but no claims of their
// own.
func TestRecordsAreRemovedWhoseClaimsTakeLong(t *testing.T) {
	for _, test := range []struct {
		scale, away, service time.Duration
		size                 int
		quotas               [2]uint64
	}{
		{200 * time.Millisecond, 20 * time.Millisecond, 300 * time.Microsecond, 2, [2]uint64{1, 1}},
		{time.Second, 20 * time.Millisecond, 400 * time.Microsecond, 2, [2]uint64{1, 1}},
		{time.Second, 190 * time.Millisecond, 120 * time.Microsecond, 2, [2]uint64{1, 1}},
		{time.Second, 140 * time.Millisecond, 50 * time.Microsecond, 1, [2]uint64{0, 0}},
		{time.Second, 140 * time.Millisecond, 50 * time.Microsecond, 1, [2]uint64{255, 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := inMemory(t, mockserver.WithRealCollector(), mockserver.WithServiceTime(test.service),
				mockserver.WithValueSize(test.size))
			for i := range 600 {
				for id, name := range namesOf(t, fmt.Sprint("k", i), test.scale, test.size) {
					srv.Set(name, test.quotas[id], 9*time.Second+time.Duration(i)*time.Millisecond)
				}
			}
			srv.Inject(mockserver.Fault{Delay: test.away})
			sweeping(t, srv)
			time.Sleep(15 * time.Second)
			require.Zero(t, srv.Expired(), "%v", test)
			require.Len(t, windowKeys(srv), 1, "that of the open window")
		})
	}
}

// setOrphans creates both records of each of some keys, which are left so long, each key's longer by a step.
func setOrphans(t *testing.T, srv *mockserver.Server, keys int, scale, left, step time.Duration) {
	for i := range keys {
		for _, name := range namesOf(t, fmt.Sprint("k", i), scale, 2) {
			srv.Set(name, 1, left+time.Duration(i)*step)
		}
	}
}

// sweeping returns a backend that sweeps a server, with one open window.
func sweeping(t *testing.T, srv *mockserver.Server) *Backend {
	b := New(options(t, srv))
	t.Cleanup(b.Close)
	hits(t, b, 1, "a", fixed(time.Minute, 1))
	return b
}
