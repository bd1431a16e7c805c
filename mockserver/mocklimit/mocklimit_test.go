package mocklimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/mockserver/mocklimit"
	"github.com/throttr-go/throttr/window"
)

func Example() {
	srv, err := mockserver.Start(mockserver.WithVirtualClock()) // in a test: mockserver.RunT(t, …)
	if err != nil {
		panic(err)
	}
	defer srv.Close()
	ctx := context.Background()
	backend, err := throttr.Open(ctx, "throttr://"+srv.Addr(), throttr.WithClock(srv.Now))
	if err != nil {
		panic(err)
	}
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)

	limiter.HitN(ctx, "user:42", time.Minute, 100, 3)
	srv.Advance(20 * time.Second)
	w, ok := mocklimit.Window(srv, "user:42", time.Minute)
	fmt.Println(w.Count, w.Left, ok)
	srv.Advance(40 * time.Second)
	_, ok = mocklimit.Window(srv, "user:42", time.Minute)
	fmt.Println(ok)
	// Output:
	// 3 40s true
	// false
}

// The helper agrees with the backend, whatever the layout of records is.
func TestWindowIsWhatTheBackendReturns(t *testing.T) {
	keys := []string{"", "k", "user:42", "a:b:1m0s:c", strings.Repeat("long", 50), "\x00\xff"}
	for size := 1; size <= 8; size *= 2 {
		for _, algorithm := range []window.Algorithm{window.PerKey, window.Aligned} {
			t.Run(fmt.Sprint(8*size, " ", algorithm), func(t *testing.T) {
				srv := mockserver.RunT(t, mockserver.WithVirtualClock(), mockserver.WithValueSize(size))
				srv.Advance(7 * time.Second)
				backend, err := throttr.Open(t.Context(), "throttr://"+srv.Addr(), throttr.WithClock(srv.Now), throttr.WithAlgorithm(algorithm))
				require.NoError(t, err)
				defer backend.Close()
				for i, key := range keys {
					_, ok := mocklimit.Window(srv, key, time.Minute)
					require.False(t, ok)
					require.Empty(t, mocklimit.Records(srv, key, time.Minute))
					_, err := backend.Hit(t.Context(), key, time.Minute, 100, uint64(i+1))
					require.NoError(t, err)
					_, err = backend.Hit(t.Context(), key, time.Hour, 100, 50)
					require.NoError(t, err)
				}
				srv.Advance(10 * time.Second)
				before := srv.Requests(codec.OpQuery)
				for i, key := range keys {
					got, ok := mocklimit.Window(srv, key, time.Minute)
					require.True(t, ok)
					require.EqualValues(t, i+1, got.Count)
					require.NotEmpty(t, mocklimit.Records(srv, key, time.Minute))
					want := 50 * time.Second
					if algorithm == window.Aligned {
						want = 43 * time.Second
					}
					require.InDelta(t, want, got.Left, float64(time.Millisecond))
					require.Equal(t, got.Left, got.ExpiresAt.Sub(srv.Now()))
				}
				require.Equal(t, before, srv.Requests(codec.OpQuery))
				srv.Advance(time.Minute)
				for _, key := range keys {
					_, ok := mocklimit.Window(srv, key, time.Minute)
					require.False(t, ok, "it is over")
					_, ok = mocklimit.Window(srv, key, time.Hour)
					require.True(t, ok, "another scale is another window")
				}
				_, ok := mocklimit.Window(srv, "k", time.Second)
				require.False(t, ok)
			})
		}
	}
}

func TestRecordsOfOthersAreNotWindows(t *testing.T) {
	srv := mockserver.RunT(t)
	for _, name := range []string{"", "k", "user:42", "rl:1m0s:x:k", "rl:1m0s::k", "1m0s:k"} {
		srv.Set(name, 5, time.Hour)
	}
	_, ok := mocklimit.Window(srv, "k", time.Minute)
	require.False(t, ok)
	require.Empty(t, mocklimit.Records(srv, "k", time.Minute))
}
