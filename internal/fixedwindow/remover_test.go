package fixedwindow

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/mockserver"
)

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
		{200 * time.Millisecond, 30 * time.Millisecond, 50 * time.Microsecond, 2, [2]uint64{1, 1}},
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
