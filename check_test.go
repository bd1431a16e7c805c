package throttr_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// limits are some that a server of small values can't keep, and some that it can.
var limits = []struct {
	scale time.Duration
	limit uint64
}{
	{time.Minute, 100}, {time.Second, 191}, {time.Second, 192}, {time.Hour, 65471}, {time.Hour, 65472}, {time.Hour, 100_000},
	{90500 * time.Millisecond, 5}, {24*time.Hour + time.Second, 5}, {24 * time.Hour, 5}, {time.Minute, math.MaxUint64},
	{60, 5}, {0, 5}, {-time.Second, 5}, {time.Millisecond, 5},
}

// Check foretells what a hit returns.
func TestCheckRefusesWhatHitsRefuse(t *testing.T) {
	backends := map[string]throttr.Backend{}
	m := memory.New()
	t.Cleanup(func() { m.Close() })
	backends["memory"] = m
	for size, name := range map[int]string{1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"} {
		srv := mockserver.RunT(t, mockserver.WithValueSize(size))
		backends[name] = openURL(t, "throttr://"+srv.Addr()+"?parking=always")
	}
	for name, b := range backends {
		l := throttr.NewRateLimit(b)
		for _, c := range limits {
			_, err := l.Hit(t.Context(), "k", c.scale, c.limit)
			checked := l.Check(throttr.Limit{Max: c.limit, Scale: c.scale})
			refused := errors.Is(err, throttr.ErrScale) || errors.Is(err, throttr.ErrRange) // a server may also be too slow
			require.Equal(t, refused, checked != nil, "%s, %d in %v: %v, but Check: %v", name, c.limit, c.scale, err, checked)
			_, err = b.Check(throttr.Limit{Max: 1, Scale: 60, Algorithm: throttr.FixedWindow})
			require.ErrorIs(t, err, throttr.ErrScale)
		}
	}
}

func TestCheckKnowsTheFallbackToo(t *testing.T) {
	m := memory.New()
	t.Cleanup(func() { m.Close() })
	srv := mockserver.RunT(t)
	l := throttr.NewRateLimit(m, throttr.WithFallback(openURL(t, "throttr://"+srv.Addr())))
	require.NoError(t, l.Check(throttr.Limit{Max: 1000, Scale: time.Hour}))
	require.ErrorIs(t, l.Check(throttr.Limit{Max: 100_000, Scale: time.Hour}), throttr.ErrRange)
}
