package throttr_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// listed lists windows by their keys and the names of their limits.
func listed(ctx context.Context, b throttr.Backend, keys ...string) (map[string]throttr.Listed, error) {
	all := map[string]throttr.Listed{}
	for l, err := range b.List(ctx, keys...) {
		if err != nil {
			return all, err
		}
		all[l.Key+"/"+l.Limit.Name] = l
	}
	return all, nil
}

func TestWindowsOfServersAreListed(t *testing.T) { synctest.Test(t, testListed) }

func testListed(t *testing.T) {
	servers := testkit.Several(t, 2)
	client := testkit.Client[uint16](t, servers.Over(throttr.Config{}))
	b, ctx := client.Backend(), t.Context()
	limiter := throttr.NewRateLimit(b)
	minute, login := throttr.Limit{Max: 5, Scale: time.Minute}, throttr.Limit{Name: "login", Max: 9, Scale: time.Hour}
	const keys = 600 // more than are read at a time, on each server
	for i := range keys {
		decided(t)(limiter.Take(ctx, "k"+strconv.Itoa(i), minute, uint64(i%5+1)))
	}
	decided(t)(limiter.Take(ctx, "k7", login, 9))
	long := strings.Repeat("x", 90)
	for _, l := range []throttr.Limit{minute, login} {
		decided(t)(limiter.Take(ctx, long, l, 2))
	}
	_, err := client.Insert(ctx, "a counter", 1, testkit.Minute)
	require.NoError(t, err)

	all, err := listed(ctx, b)
	require.NoError(t, err)
	require.Len(t, all, keys+3)
	for i := range keys {
		require.EqualValues(t, i%5+1, all["k"+strconv.Itoa(i)+"/"].Window.Count)
	}
	some, err := listed(ctx, b, "k7", "nobody", long)
	require.NoError(t, err)
	require.Len(t, some, 3, "of a long key, that of the limit without a name")
	seven := some["k7/login"]
	require.EqualValues(t, 9, seven.Window.Count)
	require.InDelta(t, time.Hour, seven.Window.Left, float64(time.Minute))
	require.LessOrEqual(t, some["k7/"].Window.Left, time.Minute)
	require.WithinDuration(t, time.Now().Add(time.Hour), seven.Window.ExpiresAt, time.Minute)
	login.Max, login.Algorithm = 0, throttr.FixedWindow
	require.Equal(t, login, seven.Limit, "servers do not store Max")
	delete(some, "k7/")
	delete(some, "k7/login")
	for _, l := range some {
		require.True(t, l.Digest)
		require.Equal(t, time.Minute, l.Limit.Scale)
	}

	n := 0
	for range b.List(ctx) {
		if n++; n == 300 {
			break
		}
	}
	require.Equal(t, 300, n)
	require.NoError(t, b.Reset(ctx, "k7", seven.Limit))
	some, err = listed(ctx, b, "k7")
	require.NoError(t, err)
	require.Len(t, some, 1, "what was reset is over")

	for _, fault := range []mockserver.Fault{{Op: codec.OpList, Disconnect: true}, {Op: codec.OpQuery, Disconnect: true}} {
		remove := servers[1].Inject(fault)
		_, err = listed(ctx, b)
		require.ErrorContains(t, err, servers[1].Addr())
		remove()
	}
	n = 0
	for _, srv := range servers {
		time.Sleep(5 * time.Second) // until both are connected again
		afterProbe := mockserver.Fault{Op: codec.OpQuery, Skip: 10, Disconnect: true}
		remove := srv.Inject(afterProbe)
		others, err := listed(ctx, b)
		require.Equal(t, 1, strings.Count(err.Error(), "QUERY"), "it is asked for nothing else: %v", err)
		require.ErrorContains(t, err, srv.Addr())
		require.NotEmpty(t, others)
		n += len(others)
		remove()
	}
	require.Equal(t, keys+2, n, "either server's windows come although the other one fails")
}
