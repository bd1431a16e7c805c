package faults_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

func TestPolicyDecidesDuringAnOutageOnly(t *testing.T) {
	for name, c := range map[string]struct {
		option throttr.Option
		during map[string]bool // what decides during the outage
	}{
		"ReturnError": {throttr.WithPolicy(throttr.ReturnError), map[string]bool{"error": true}},
		"AllowHits":   {throttr.WithPolicy(throttr.AllowHits), map[string]bool{"allowed": true}},
		"DenyHits":    {throttr.WithPolicy(throttr.DenyHits), map[string]bool{"denied": true}},
		"fallback":    {nil, map[string]bool{"allowed": true, "denied": true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.option == nil {
					b := memory.New()
					t.Cleanup(func() { b.Close() })
					c.option = throttr.WithFallback(b)
				}
				server := map[string]bool{"server": true}
				require.Equal(t, []map[string]bool{server, c.during, server}, deciders(t, c.option))
			})
		})
	}
}

// deciders returns what decides hits before, during and after an outage of the server. The outage ends when
// the client has reconnected. No hit may take longer than 10 ms.
func deciders(t *testing.T, o throttr.Option) []map[string]bool {
	srv := testkit.InMemory(t)
	client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxBackoff: time.Second}))
	limiter := throttr.NewRateLimit(client.Backend(), o)
	hits := func(d time.Duration) map[string]bool {
		var mu sync.Mutex
		deciders := map[string]bool{}
		var load sync.WaitGroup
		for range 16 {
			load.Go(func() {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					start := time.Now()
					res, err := limiter.Hit(t.Context(), "k", 200*time.Millisecond, 50)
					if elapsed := time.Since(start); elapsed > 10*time.Millisecond {
						t.Errorf("a hit took %v", elapsed)
					}
					mu.Lock()
					deciders[decider(res, err)] = true
					mu.Unlock()
				}
			})
		}
		load.Wait()
		return deciders
	}
	before := hits(time.Second)
	srv.Refuse(true)
	srv.Disconnect()
	during := hits(3 * time.Second)
	require.NoError(t, srv.Restart(false))
	srv.Refuse(false)
	hits(1200 * time.Millisecond) // MaxBackoff, with a jitter of up to a tenth
	return []map[string]bool{before, during, hits(time.Second)}
}

// decider returns what has decided a hit.
func decider(res throttr.Result, err error) string {
	switch {
	case err != nil:
		return "error"
	case !res.Degraded:
		return "server"
	case res.Allowed:
		return "allowed"
	default:
		return "denied"
	}
}
