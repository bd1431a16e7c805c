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
	"github.com/throttr-go/throttr/window"
)

// The names of its records are of use for longer than the records last, unless they are prolonged.
func TestAlignedRecordsOfAClientWhoseClockIsAheadDoNotExpire(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const scale, ahead = 100 * time.Second, 90 * time.Second
				srv := testkit.InMemory(t, mockserver.WithValueSize(1), mockserver.WithRealCollector())
				cfg := throttr.Config{Parking: throttr.ParkingNever}
				time.Sleep(time.Duration(seed) * 17 * time.Second)
				dead := startWith[uint8](t, srv, cfg, throttr.AlignedWindow, testkit.ClockAhead(ahead))
				dead.hit(rand.New(rand.NewPCG(30, seed)), keys(50), scale, 50*time.Millisecond, 100)
				time.Sleep(2 * time.Minute)
				dead.end()
				require.NotEmpty(t, testkit.Keys(srv))
				startWith[uint8](t, srv, cfg, throttr.AlignedWindow)
				time.Sleep(10 * time.Minute)
				require.Zero(t, srv.Expired())
				require.Empty(t, testkit.Keys(srv))
			})
		})
	}
}

// Fifty processes sweep as often as any scale needs it.
func TestOneProcessOfAFleetSweepsHoweverShortTheInterval(t *testing.T) {
	for _, c := range []struct {
		algorithm throttr.Algorithm
		scale     time.Duration
		lists     float64 // in a minute
	}{
		{window.FixedWindow, 104 * time.Second, 50},
		{throttr.AlignedWindow, 121 * time.Second, 25},
	} {
		t.Run(c.algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t, mockserver.WithValueSize(1), mockserver.WithRealCollector())
				for range testkit.Fewer(50) {
					p := startWith[uint8](t, srv, throttr.Config{Parking: throttr.ParkingNever}, c.algorithm)
					_, err := p.limiter.Hit(t.Context(), "k", c.scale, 255)
					require.NoError(t, err)
				}
				time.Sleep(10 * time.Second)
				before := srv.Requests(codec.OpList)
				time.Sleep(time.Minute)
				require.InEpsilon(t, c.lists, srv.Requests(codec.OpList)-before, 0.25)
			})
		})
	}
}

func TestScalesThatLeaveNoTimeForSweepsNeedAParkedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 127 * time.Second
		srv := testkit.InMemory(t, mockserver.WithValueSize(1), mockserver.WithRealCollector())
		srv.Set("somebody's", 1, time.Hour)
		p := startWith[uint8](t, srv, throttr.Config{}, throttr.AlignedWindow)
		_, err := p.limiter.Hit(t.Context(), "k", scale, 10)
		require.ErrorIs(t, err, throttr.ErrRange)
		require.ErrorContains(t, err, "unless the server is parked")
		_, err = p.limiter.Set(t.Context(), "k", scale, 10)
		require.ErrorIs(t, err, throttr.ErrRange)
		require.Equal(t, []string{"somebody's"}, testkit.Keys(srv))
		require.NoError(t, p.limiter.Check(throttr.Limit{Max: 10, Scale: scale}))

		parked := testkit.InMemory(t, mockserver.WithValueSize(1), mockserver.WithRealCollector())
		q := startWith[uint8](t, parked, throttr.Config{}, throttr.AlignedWindow)
		require.Equal(t, 5, testkit.Hits(t, q.limiter, 8, "k", scale, 5))
	})
}

// bucketOf returns the aligned window of a clock.
func bucketOf(ahead, scale time.Duration) int64 {
	return time.Now().Add(ahead).UnixNano() / int64(scale)
}

// ownAligned uses a key that no other process uses, with Set and Reset. It knows the count of each
// window that it has begun with one of them, until the window ends by its clock.
func ownAligned(l *ledger, p *process[uint16], r *rand.Rand, key string, scale, ahead time.Duration) {
	for p.ctx.Err() == nil {
		bucket, want := bucketOf(ahead, scale), uint64(0)
		if r.IntN(2) == 0 {
			if p.limiter.Reset(p.ctx, key, scale) != nil {
				return
			}
		} else {
			want = 1 + r.Uint64N(20)
			if _, err := p.limiter.Set(p.ctx, key, scale, want); err != nil {
				return
			}
		}
		for bucketOf(ahead, scale) == bucket {
			var n uint64
			var err error
			if r.IntN(2) == 0 {
				n, err = p.limiter.Get(p.ctx, key, scale)
			} else {
				res, hitErr := p.limiter.Hit(p.ctx, key, scale, 100)
				want++
				n, err = res.Count, hitErr
			}
			if err != nil {
				return
			}
			if bucketOf(ahead, scale) != bucket {
				break
			}
			l.mu.Lock()
			l.checks++
			l.mu.Unlock()
			if n != want {
				l.report("%s: the count is %d, and should be %d", key, n, want)
			}
			time.Sleep(time.Duration(1 + r.Int64N(int64(scale/8))))
		}
	}
}

// sharedAligned hits keys that other processes hit, too, and counts what is certainly allowed in each
// window.
func sharedAligned(l *ledger, allowed map[string]int, p *process[uint16], r *rand.Rand, scale, ahead time.Duration, limit uint64) {
	for p.ctx.Err() == nil {
		key, bucket := fmt.Sprint("shared:", r.IntN(5)), bucketOf(ahead, scale)
		res, err := p.limiter.Hit(p.ctx, key, scale, limit)
		if err == nil && res.Allowed && bucketOf(ahead, scale) == bucket {
			l.mu.Lock()
			allowed[fmt.Sprint(key, ":", bucket)]++
			l.mu.Unlock()
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
}

// Processes whose clocks are 0.9 scales apart are killed and restarted. They hit, set and reset
// aligned windows, while others sweep without a pause.
func TestSweepsDoNotDisturbSetAndResetOfAlignedWindows(t *testing.T) {
	for _, mode := range []throttr.Parking{throttr.ParkingAlways, throttr.ParkingNever} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sweepAligned(t, mode) })
		})
	}
}

func sweepAligned(t *testing.T, mode throttr.Parking) {
	const scale, limit = time.Second, 20
	srv := testkit.InMemory(t, mockserver.WithRealCollector())
	srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	l, allowed := newLedger(), make(map[string]int)
	seed := uint64(0)
	begin := func(ahead time.Duration) *process[uint16] {
		p := startWith[uint16](t, srv, throttr.Config{Parking: mode}, throttr.AlignedWindow, testkit.ClockAhead(ahead))
		for range 4 {
			seed++
			own, shared := rand.New(rand.NewPCG(31, seed)), rand.New(rand.NewPCG(32, seed))
			key := fmt.Sprint("own:", seed)
			p.work.Go(func() { ownAligned(l, p, own, key, scale, ahead) })
			p.work.Go(func() { sharedAligned(l, allowed, p, shared, scale, ahead, limit) })
		}
		return p
	}
	removed := sweepRestarted(t, srv, mode, 1, begin)
	require.Empty(t, l.wrong)
	require.NotZero(t, l.checks)
	require.NotEmpty(t, allowed)
	for w, n := range allowed {
		require.LessOrEqual(t, n, limit, w)
	}
	require.NotZero(t, removed)
	require.Zero(t, srv.Expired())
	t.Log(l.checks, "counts,", len(allowed), "windows,", removed, "records were removed by sweepers")
}
