package redisbackend_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
)

// Each node of a cluster has a circuit: that of one that hangs decides nothing about the keys of another.
func TestANodeThatHangsStopsItsOwnKeysOnly(t *testing.T) {
	c := testkit.StartPrimaries(t, 3)
	find := func(from, to int) string {
		for i := 0; ; i++ {
			key := fmt.Sprint("user:", i)
			slot, err := strconv.Atoi(c.Primaries[2].Must(t, "CLUSTER", "KEYSLOT", "k:"+key))
			noError(t, err)
			if slot >= from && slot <= to {
				return key
			}
		}
	}
	hung, healthy := find(5120, 5460), find(5461, 6143) // close to each other, on nodes 0 and 1
	b := redisbackend.New(onCluster(t, c))
	limiter := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits), throttr.WithLogger(nil))
	limit := throttr.Limit{Max: 5, Scale: time.Minute}
	take := func(key string) throttr.Result {
		r, err := limiter.Take(context.Background(), key, limit, 1)
		noError(t, err)
		return r
	}
	take(hung)
	for deadline := time.Now().Add(patience); b.Part(hung) == "" || b.Part(hung) == b.Part(healthy); take(healthy) {
		expect(t, time.Now().Before(deadline), "the nodes of the slots are not known")
		time.Sleep(10 * time.Millisecond)
	}
	_, err := b.Delete(t.Context(), healthy)
	noError(t, err)
	c.Primaries[0].Freeze(t)
	defer c.Primaries[0].Thaw(t)
	degraded := 0
	for range 5 {
		if take(hung).Degraded {
			degraded++
		}
	}
	expect(t, degraded == 5, "%d of 5 takes on the node that hangs were decided by the policy", degraded)
	allowed := 0
	for range 50 {
		r := take(healthy)
		expect(t, !r.Degraded, "a take on a key of a node that is there was decided by the policy")
		if r.Allowed {
			allowed++
		}
	}
	expect(t, allowed == 5, "%d of 5 were allowed", allowed)
}
