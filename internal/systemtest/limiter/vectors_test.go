package limiter_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// windowVector is a sequence of calls on a virtual clock. Times are milliseconds.
type windowVector struct {
	Name  string
	Steps []struct {
		T          int64
		Op         string // hit, inc, get, set or expires_at
		Key        string
		Scale      int64
		Limit, Inc uint64
		Arg        uint64 // increment of inc, or count of set
		Want       string // allow or deny
		Value      uint64 // count; time to wait for a denial
	}
	// CountsAfterDenial marks vectors in which a get after a denial returns a count that
	// includes denied hits. On servers it may be lower.
	CountsAfterDenial bool `json:"counts_after_denial"`
}

func windowVectors(t *testing.T) []windowVector {
	t.Helper()
	text, err := os.ReadFile("../../../backendtest/testdata/fix-window-per-key.json")
	require.NoError(t, err)
	var vectors []windowVector
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Len(t, vectors, 24)
	return vectors
}

func TestWindowVectorsHoldOnServers(t *testing.T) {
	t.Run("uint8", testWindowVectors[uint8])
	t.Run("uint16", testWindowVectors[uint16])
	t.Run("uint32", testWindowVectors[uint32])
	t.Run("uint64", testWindowVectors[uint64])
}

func testWindowVectors[T codec.Value](t *testing.T) {
	for _, v := range windowVectors(t) {
		for _, offset := range []time.Duration{0, 37 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/%v", v.Name, offset), func(t *testing.T) {
				srv := mockserver.RunT(t, mockserver.WithVirtualClock(), mockserver.WithValueSize(codec.Size[T]()))
				client := testkit.Connect[T](t, srv, testkit.ParkedIfSmall[T](throttr.Config{}))
				srv.Advance(offset)
				// With 1-byte values, TTLs of longer scales are in seconds.
				exact := time.Millisecond
				if codec.Size[T]() == 1 {
					exact = time.Second
				}
				replayWindows(t, throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now))), srv, v, exact)
			})
		}
	}
}

func replayWindows(t *testing.T, limiter *throttr.RateLimit, srv *mockserver.Server, v windowVector, exact time.Duration) {
	t.Helper()
	ctx, start := t.Context(), srv.Now()
	full := false
	for i, s := range v.Steps {
		at := start.Add(time.Duration(s.T) * time.Millisecond)
		srv.Advance(at.Sub(srv.Now()))
		scale := time.Duration(s.Scale) * time.Millisecond
		what := fmt.Sprintf("step %d: %+v", i, s)
		switch s.Op {
		case "hit":
			res, err := limiter.HitN(ctx, s.Key, scale, s.Limit, s.Inc)
			require.NoError(t, err, what)
			require.Equal(t, s.Want == "allow", res.Allowed, what)
			if res.Allowed {
				require.Equal(t, s.Value, res.Count, what)
				require.Equal(t, s.Limit-s.Value, res.Remaining, what)
				require.Zero(t, res.RetryAfter, what)
			} else {
				full = true
				wait := time.Duration(s.Value) * time.Millisecond
				require.InDelta(t, wait, res.RetryAfter, float64(exact), what)
				require.Equal(t, srv.Now().Add(res.RetryAfter), res.ResetAt, what)
			}
		case "inc":
			n, err := limiter.Inc(ctx, s.Key, scale, s.Arg)
			require.NoError(t, err, what)
			require.Equal(t, s.Value, n, what)
		case "set":
			n, err := limiter.Set(ctx, s.Key, scale, s.Arg)
			require.NoError(t, err, what)
			require.Equal(t, s.Value, n, what)
		case "get":
			n, err := limiter.Get(ctx, s.Key, scale)
			require.NoError(t, err, what)
			if v.CountsAfterDenial && full && n != s.Value {
				require.Less(t, n, s.Value, what)
				continue
			}
			require.Equal(t, s.Value, n, what)
		case "expires_at":
			end, err := limiter.ExpiresAt(ctx, s.Key, scale)
			require.NoError(t, err, what)
			if s.Value == 0 {
				require.Zero(t, end, what)
				continue
			}
			require.InDelta(t, time.Duration(s.Value)*time.Millisecond, end.Sub(start), float64(exact), what)
		default:
			t.Fatalf("unknown op in %s", what)
		}
	}
}
