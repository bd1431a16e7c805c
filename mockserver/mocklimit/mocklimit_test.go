package mocklimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/mockserver/mocklimit"
	"github.com/throttr-go/throttr/window"
)

func Example() {
	srv, err := mockserver.Start() // in a test: mockserver.RunT(t, …)
	if err != nil {
		panic(err)
	}
	defer srv.Close()
	ctx := context.Background()
	backend, err := throttr.OpenServers(ctx, throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		panic(err)
	}
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)

	api := throttr.Limit{Name: "api", Max: 100, Scale: time.Minute}
	limiter.Take(ctx, "user:42", api, 3)
	w, ok := mocklimit.Window(srv, "user:42", api)
	fmt.Println(w.Count, w.Left.Round(time.Second), ok)
	_, ok = mocklimit.Window(srv, "user:43", api)
	fmt.Println(ok)
	// Output:
	// 3 1m0s true
	// false
}

// The helper agrees with the backend, whatever the layout of records is.
func TestWindowIsWhatTheBackendReturns(t *testing.T) {
	keys := []string{"", "k", "user:42", "a:b:1m0s:c", strings.Repeat("long", 50), "\x00\xff"}
	for size := 1; size <= 8; size *= 2 {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithValueSize(size))
			backend, err := throttr.OpenServers(t.Context(), testkit.Over(srv, throttr.Config{}))
			require.NoError(t, err)
			defer backend.Close()
			minute := window.Limit{Max: 100, Scale: time.Minute, Algorithm: window.FixedWindow}
			named, hour := minute, minute
			named.Name, hour.Scale = "login", time.Hour
			for _, others := range []string{"k", "user:42", "rl:1m0s:x:k", "rl:1m0s::k", "1m0s:k"} {
				srv.Set(others, 5, time.Hour)
			}
			for i, key := range keys {
				_, ok := mocklimit.Window(srv, key, minute)
				require.False(t, ok)
				require.Empty(t, mocklimit.Records(srv, key, minute))
				for l, n := range map[window.Limit]uint64{minute: uint64(i + 1), hour: 50, named: 50} {
					_, err = backend.Hit(t.Context(), key, l, n)
					require.NoError(t, err)
				}
			}
			time.Sleep(10 * time.Second)
			for i, key := range keys {
				got, ok := mocklimit.Window(srv, key, minute)
				require.True(t, ok)
				require.EqualValues(t, i+1, got.Count)
				other, _ := mocklimit.Window(srv, key, named)
				require.EqualValues(t, 50, other.Count, "another name is another window")
				require.NotEmpty(t, mocklimit.Records(srv, key, minute))
				require.InDelta(t, 50*time.Second, got.Left, float64(time.Millisecond))
				require.Equal(t, got.Left, got.ExpiresAt.Sub(srv.Now()))
			}
			time.Sleep(time.Minute)
			for _, key := range keys {
				_, ok := mocklimit.Window(srv, key, minute)
				require.False(t, ok, "it is over")
				_, ok = mocklimit.Window(srv, key, hour)
				require.True(t, ok, "another scale is another window")
			}
			_, ok := mocklimit.Window(srv, "k", window.Limit{Scale: time.Second})
			require.False(t, ok)
		})
	}
}
