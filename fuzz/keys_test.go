package fuzz_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// FuzzKeys hits two keys of any bytes on a server, as keys and as entities and operations.
// A hit on one must not count for the other. The server must execute exactly the requests of
// these hits: no key is ever taken for a request.
//
//evidence:limits No two keys share a limit, whatever their bytes
func FuzzKeys(f *testing.F) {
	f.Add("user:42", "user:43", "user", "42", "user:4", "2")
	f.Add("", "\x00", "a:b", "c", "a", "b:c")
	f.Add("rl:1m0s:1:k", "k", "1", "1:1", "1:1", "1")
	f.Add("\x02\x01k", "\x04\x01k", "\x01", "\x02", "\x02", "\x01")
	f.Add("1:a:b", "a", "a", "b", "1:a", "b")
	long := string(make([]byte, 81))
	f.Add(long, long+"x", long, "o", long+"o", "o")
	f.Fuzz(func(t *testing.T, key1, key2, entity1, operation1, entity2, operation2 string) {
		srv, err := mockserver.Start(mockserver.WithVirtualClock(), mockserver.WithAddr("memory", "fuzz:1"))
		require.NoError(t, err)
		client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
		})
		require.NoError(t, err)
		for _, algorithm := range []window.Algorithm{window.PerKey, window.Aligned} {
			limiter := throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now), throttr.WithAlgorithm(algorithm)))
			requireWindows(t, srv, key1 == key2, func(i int, scale time.Duration) uint64 {
				res, err := limiter.Hit(t.Context(), []string{key1, key2}[i], scale, 9)
				require.NoError(t, err)
				return res.Count
			})
			entities := throttr.NewEntities(limiter)
			if entity1 == "" || operation1 == "" || entity2 == "" || operation2 == "" ||
				max(len(entity1), len(operation1), len(entity2), len(operation2)) > 1024 {
				continue // a *ValidationError
			}
			samePair := entity1 == entity2 && operation1 == operation2
			requireWindows(t, srv, samePair, func(i int, scale time.Duration) uint64 {
				entity, operation := []string{entity1, entity2}[i], []string{operation1, operation2}[i]
				scale += time.Second // so that a pair never meets an equal key
				require.NoError(t, entities.Check(t.Context(), entity, operation, 9, scale, nil))
				res, err := entities.Status(t.Context(), entity, operation, 9, scale)
				require.NoError(t, err)
				return res.Count
			})
		}
		require.NoError(t, client.Close())
		require.Empty(t, srv.Violations())
		require.NoError(t, srv.Close())
	})
}

// requireWindows hits windows 0 and 1 with two scales each. It requires that they share a
// count only if they are the same, and that the server has a record per window more.
func requireWindows(t *testing.T, srv *mockserver.Server, same bool, hit func(i int, scale time.Duration) uint64) {
	before, windows := len(testkit.Keys(srv)), 0
	for _, scale := range []time.Duration{time.Minute, time.Hour} {
		require.EqualValues(t, 1, hit(0, scale))
		second := hit(1, scale)
		windows++
		if same {
			require.EqualValues(t, 2, second)
			continue
		}
		windows++
		require.EqualValues(t, 1, second)
	}
	require.Len(t, testkit.Keys(srv), before+windows)
}
