package throttr_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

// tally is what came of hits during an outage.
type tally struct{ server, allowed, denied, failed atomic.Int64 }

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
				for _, calm := range []*tally{before, after} {
					require.Positive(t, calm.server.Load())
					require.Zero(t, calm.allowed.Load()+calm.denied.Load()+calm.failed.Load(), "the server decides")
				}
				require.Equal(t, c.allowed, during.allowed.Load() > 0)
				require.Equal(t, c.denied, during.denied.Load() > 0)
				require.Equal(t, c.failed, during.failed.Load() > 0)
			})
		})
	}
}

// measureOutage has callers hit before, during and after an outage. The time in which the
// server is noticed to be back belongs to the outage.
func measureOutage(t *testing.T, policy throttr.Option) (before, during, after *tally) {
	srv := inMemory(t)
	client := connect[uint16](t, srv, over(srv, throttr.Config{MaxRetryPause: time.Second}))
	limiter := throttr.NewRateLimit(client.Backend(), policy)
	before, during, after = new(tally), new(tally), new(tally)
	var phase atomic.Pointer[tally]
	phase.Store(before)
	var load sync.WaitGroup
	stop := make(chan struct{})
	for range 16 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				begun := time.Now()
				res, err := limiter.Hit(t.Context(), "k", 200*time.Millisecond, 50)
				if took := time.Since(begun); took > 10*time.Millisecond {
					t.Errorf("a hit took %v", took)
				}
				phase.Load().add(res, err)
			}
		})
	}
	pass(time.Second)
	phase.Store(during)
	srv.Refuse(true)
	srv.Disconnect()
	pass(3 * time.Second)
	require.NoError(t, srv.Restart(false))
	srv.Refuse(false)
	pass(1200 * time.Millisecond) // MaxRetryPause, and a tenth
	phase.Store(after)
	pass(time.Second)
	close(stop)
	load.Wait()
	return before, during, after
}

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
