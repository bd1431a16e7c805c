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
func FuzzKeys(f *testing.F) {
	f.Add("user:42", "user:43", "user", "42", "user:4", "2")
	f.Add("", "\x00", "a:b", "c", "a", "b:c")
	f.Add("rl:1m0s:1:k", "k", "1", "1:1", "1:1", "1")
	f.Add("\x02\x01k", "\x04\x01k", "\x01", "\x02", "\x02", "\x01")
	f.Add("1:a:b", "a", "a", "b", "1:a", "b")
	long := string(make([]byte, 81))
	f.Add(long, long+"x", long, "o", long+"o", "o")
	longer := long + long + long
	f.Add(longer+"1", longer+"2", longer+"1", "o", longer+"2", "o")
	f.Fuzz(func(t *testing.T, key1, key2, named1, name1, named2, name2 string) {
		srv, err := mockserver.Start(mockserver.WithAddr("memory", "fuzz:1"))
		require.NoError(t, err)
		client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
		})
		require.NoError(t, err)
		backend := client.Backend()
		count := func(key string, l throttr.Limit) uint64 {
			res, err := throttr.NewRateLimit(backend).HitN(t.Context(), key, l, 1)
			require.NoError(t, err)
			return res.Count
		}
		limit := throttr.Limit{Max: 9}
		requireWindows(t, srv, key1 == key2, func(i int, scale time.Duration) uint64 {
			limit.Scale = scale
			return count([]string{key1, key2}[i], limit)
		})
		if name1 != "" && name2 != "" && validName(name1) && validName(name2) {
			requireWindows(t, srv, named1 == named2 && name1 == name2, func(i int, scale time.Duration) uint64 {
				limit.Name, limit.Scale = []string{name1, name2}[i], scale
				return count([]string{named1, named2}[i], limit)
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

// validName reports whether a limit can have the name.
func validName(s string) bool {
	return throttr.NewRateLimit(none{}).Check(throttr.Limit{Name: s, Max: 1, Scale: time.Minute}) == nil
}

// none is a backend that keeps every limit.
type none struct{ window.Unimplemented }

func (none) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }
