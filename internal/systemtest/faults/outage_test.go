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

// decisions counts hits by what decided them.
type decisions struct{ server, allowed, denied, failed atomic.Int64 }

//evidence:outages While a server is down, the policy decides, at once; and only then
func TestPolicyDecidesDuringAnOutageOnly(t *testing.T) {
	for _, c := range []struct {
		name                    string
		option                  func(t *testing.T) throttr.Option
		allowed, denied, failed bool
	}{
		{"ReturnError", func(*testing.T) throttr.Option { return throttr.WithPolicy(throttr.ReturnError) }, false, false, true},
		{"AllowHits", func(*testing.T) throttr.Option { return throttr.WithPolicy(throttr.AllowHits) }, true, false, false},
		{"DenyHits", func(*testing.T) throttr.Option { return throttr.WithPolicy(throttr.DenyHits) }, false, true, false},
		{"fallback", func(t *testing.T) throttr.Option {
			b := memory.New()
			t.Cleanup(func() { b.Close() })
			return throttr.WithFallback(b)
		}, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, during, after := measureOutage(t, c.option(t))
				for _, up := range []*decisions{before, after} {
					require.Positive(t, up.server.Load())
					require.Zero(t, up.allowed.Load()+up.denied.Load()+up.failed.Load(), "hits that the server did not decide")
				}
				require.Equal(t, c.allowed, during.allowed.Load() > 0)
				require.Equal(t, c.denied, during.denied.Load() > 0)
				require.Equal(t, c.failed, during.failed.Load() > 0)
			})
		})
	}
}

// measureOutage makes hits before, during and after an outage of the server. The outage ends when
// the client has reconnected. No hit may take longer than 10 ms.
func measureOutage(t *testing.T, o throttr.Option) (before, during, after *decisions) {
	srv := testkit.InMemory(t)
	client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxBackoff: time.Second}))
	limiter := throttr.NewRateLimit(client.Backend(), o)
	before, during, after = new(decisions), new(decisions), new(decisions)
	var phase atomic.Pointer[decisions]
	phase.Store(before)
	var load sync.WaitGroup
	var stop atomic.Bool
	for range 16 {
		load.Go(func() {
			for !stop.Load() {
				time.Sleep(10 * time.Millisecond)
				start := time.Now()
				res, err := limiter.Hit(t.Context(), "k", 200*time.Millisecond, 50)
				if elapsed := time.Since(start); elapsed > 10*time.Millisecond {
					t.Errorf("a hit took %v", elapsed)
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
	time.Sleep(1200 * time.Millisecond) // MaxBackoff, with a jitter of up to a tenth
	phase.Store(after)
	time.Sleep(time.Second)
	stop.Store(true)
	load.Wait()
	return before, during, after
}

// add counts the result of a hit.
func (d *decisions) add(res throttr.Result, err error) {
	switch {
	case err != nil:
		d.failed.Add(1)
	case !res.Degraded:
		d.server.Add(1)
	case res.Allowed:
		d.allowed.Add(1)
	default:
		d.denied.Add(1)
	}
}
