package throttr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// A reservation is one allocation, and a wait whose turn it is at once has six.
func TestTakesInMemoryAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := throttr.NewRateLimit(memory.New())
	limit := throttr.Limit{Name: "a", Max: 1 << 40, Scale: time.Hour, Algorithm: throttr.TokenBucket}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	longer := throttr.Limit{Name: "a", Max: 1 << 40, Scale: 2 * time.Hour, Algorithm: throttr.TokenBucket}
	month := throttr.Limit{Name: "quota", Max: 1 << 40, Calendar: throttr.Month, Zone: "Europe/Berlin"}
	require.Zero(t, testing.AllocsPerRun(1000, func() { l.TakeAll(ctx, limit.For("k", 1), longer.For("k", 1)) }))
	observed := throttr.NewRateLimit(memory.New(), throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(memory.New()),
		throttr.WithObserver(func(context.Context, throttr.Event) {}))
	opened := throttr.NewRateLimit(openURL(t, "memory://"))
	for name, take := range map[string]func(){
		"opened":        func() { opened.Hit(ctx, "k", time.Minute, 9000) },
		"hit":           func() { l.Hit(ctx, "k", time.Minute, 9000) },
		"granted":       func() { l.Take(ctx, "k", limit, 1) },
		"named, denied": func() { observed.Take(ctx, "k", throttr.Limit{Name: "b", Max: 1, Scale: time.Hour}, 1) },
		"observed":      func() { observed.Take(ctx, "k", limit, 1) },
		"denied":        func() { l.Take(ctx, "k", throttr.Limit{Max: 1, Scale: time.Hour}, 1) },
		"calendar":      func() { l.Take(ctx, "k", month, 1) },
		"three":         func() { l.TakeAll(ctx, limit.For("k", 1), longer.For("k", 1), limit.For("l", 1)) },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, take), name)
	}
	// A call of a store that may be away has a context that ends with the time for it.
	away := throttr.NewRateLimit(struct{ throttr.Backend }{memory.New()})
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { away.Take(ctx, "k", limit, 1) }), 4.0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { away.TakeAll(ctx, limit.For("k", 1), longer.For("k", 1)) }), 5.0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { l.Reserve(ctx, limit.For("k", 1)) }), 1.0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { l.Wait(ctx, "k", limit, 1) }), 7.0)
}

// A place of a lease needs neither a store nor a context. A hit on a server has one that ends with the time for it, and
// those that are derived from it. Three of its allocations are the mock server's, one for each request.
func TestHitsOnServersAndLeasesAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	servers := openURL(t, "throttr://"+mockserver.RunT(t).Addr())
	leases := lease.New(servers, lease.WithAge(time.Hour))
	defer leases.Close()
	for _, c := range []struct {
		backend throttr.Backend
		most    float64
	}{{servers, 13}, {leases, 0}} {
		l := throttr.NewRateLimit(c.backend, throttr.WithTimeout(time.Minute))
		for range 100 { // the key becomes hot
			decided(t)(l.Hit(t.Context(), "k", time.Hour, 60000))
		}
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			if _, err := l.Hit(t.Context(), "k", time.Hour, 60000); err != nil {
				t.Error(err)
			}
		}), c.most)
	}
}
