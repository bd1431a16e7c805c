package faults_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// tally counts hits by their result.
type tally struct{ server, allowed, denied, failed atomic.Int64 }

// The policy applies while the server is down, and only then.
func TestAServerThatIsKilledAndRestartedUnderLoad(t *testing.T) {
	for _, c := range []struct {
		name                    string
		option                  func(t *testing.T) throttr.Option
		allowed, denied, failed bool
	}{
		{"return an error", func(*testing.T) throttr.Option { return throttr.WithPolicy(throttr.ReturnError) }, false, false, true},
		{"allow hits", func(*testing.T) throttr.Option { return throttr.WithPolicy(throttr.AllowHits) }, true, false, false},
		{"deny hits", func(*testing.T) throttr.Option { return throttr.WithPolicy(throttr.DenyHits) }, false, true, false},
		{"fallback", func(t *testing.T) throttr.Option {
			b := memory.New()
			t.Cleanup(func() { b.Close() })
			return throttr.WithFallback(b)
		}, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, during, after := measureOutage(t, c.option(t))
				for _, up := range []*tally{before, after} {
					require.Positive(t, up.server.Load())
					require.Zero(t, up.allowed.Load()+up.denied.Load()+up.failed.Load(), "the server decides")
				}
				require.Equal(t, c.allowed, during.allowed.Load() > 0)
				require.Equal(t, c.denied, during.denied.Load() > 0)
				require.Equal(t, c.failed, during.failed.Load() > 0)
			})
		})
	}
}

// measureOutage makes hits before, during and after an outage. The outage ends when the client
// has reconnected.
func measureOutage(t *testing.T, policy throttr.Option) (before, during, after *tally) {
	srv := testkit.InMemory(t)
	client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxRetryPause: time.Second}))
	limiter := throttr.NewRateLimit(client.Backend(), policy)
	before, during, after = new(tally), new(tally), new(tally)
	var phase atomic.Pointer[tally]
	phase.Store(before)
	var load sync.WaitGroup
	var stop atomic.Bool
	for range 16 {
		load.Go(func() {
			for !stop.Load() {
				time.Sleep(10 * time.Millisecond)
				begun := time.Now()
				res, err := limiter.Hit(t.Context(), "k", 200*time.Millisecond, 50)
				if took := time.Since(begun); took > 10*time.Millisecond {
					t.Errorf("a hit took %v", took)
				}
				phase.Load().add(res, err)
			}
		})
	}
	time.Sleep(time.Second)
	phase.Store(during)
	srv.Refuse(true)
	srv.Disconnect()
	time.Sleep(3 * time.Second)
	require.NoError(t, srv.Restart(false))
	srv.Refuse(false)
	time.Sleep(1200 * time.Millisecond) // MaxRetryPause, and a tenth of it as jitter
	phase.Store(after)
	time.Sleep(time.Second)
	stop.Store(true)
	load.Wait()
	return before, during, after
}

// add counts the result of a hit.
func (y *tally) add(res throttr.Result, err error) {
	switch {
	case err != nil:
		y.failed.Add(1)
	case !res.Degraded:
		y.server.Add(1)
	case res.Allowed:
		y.allowed.Add(1)
	default:
		y.denied.Add(1)
	}
}
