//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// While Redis hangs, the calls of a RateLimit on a client of the user's end with its time limit, and leave the
// connection to the user's own commands.
func TestCommandsOfTheUserSurviveAServerThatHangs(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s, func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 }) // one connection
	limiter := throttr.NewRateLimit(redisbackend.New(client), throttr.WithLogger(nil), throttr.WithTimeout(100*time.Millisecond))
	take := func() (time.Duration, error) {
		begun := time.Now()
		_, err := limiter.Take(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 5), 1)
		return time.Since(begun), err
	}
	_, err := take()
	noError(t, err)
	s.Freeze(t)
	for range 2 { // the first one alone on the connection, the second one behind the user's
		took, err := take()
		expect(t, errors.Is(err, throttr.ErrUnavailable) && took < time.Second, "%v, after %v", err, took)
	}
	own := make(chan error, 1)
	go func() { own <- client.Do(t.Context(), client.B().Set().Key("mine").Value("1").Build()).Error() }()
	time.Sleep(50 * time.Millisecond)
	took, err := take()
	expect(t, errors.Is(err, throttr.ErrUnavailable) && took < time.Second, "%v, after %v", err, took)
	s.Thaw(t)
	noError(t, <-own)
	expect(t, s.Must(t, "GET", "mine") == "1", "the user's own command is lost")
}

// Each node of a cluster has a circuit, for windows and for places in flight: that of one that hangs decides nothing
// about the keys of another.
func TestANodeThatHangsStopsItsOwnKeysOnly(t *testing.T) {
	c := testkit.StartCluster(t, 3, 0)
	const hung, healthy = "user:42", "user:46" // of the slots 5430 and 5554: close to each other, on nodes 0 and 1
	b := redisbackend.New(onCluster(t, c))
	limiter := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits), throttr.WithLogger(nil))
	take := func(key string) throttr.Result {
		r, err := limiter.Take(context.Background(), key, throttr.Limit{Max: 5, Scale: time.Minute}, 1)
		noError(t, err)
		return r
	}
	take(hung)
	await(t, "the nodes of the slots are not known", func() bool {
		take(healthy)
		return b.Part(hung) != "" && b.Part(hung) != b.Part(healthy)
	})
	noError(t, errorOf(b.Delete(t.Context(), healthy)))
	places := newInFlight(t, b, inflight.WithTimeout(0))
	limit := inflight.Limit{Max: 2, Lease: 2 * time.Second}
	lost, kept := acquired(t, places, hung, limit, 1), acquired(t, places, healthy, limit, 1)

	c.Primaries[0].Freeze(t)
	defer c.Primaries[0].Thaw(t)
	for range 5 {
		l := throttr.Limit{Max: 5, Scale: time.Minute}
		_, results, err := limiter.TakeAll(context.Background(), l.For(healthy, 1), l.For(hung, 1))
		expect(t, err == nil && results[1].Degraded, "takes on the node that hangs were not decided by the policy: %v", err)
	}
	noError(t, errorOf(b.Delete(t.Context(), healthy)))
	for i := range 50 {
		r := take(healthy)
		expect(t, !r.Degraded && r.Allowed == (i < 5), "take %d on a key of a node that is there: %+v", i, r)
	}
	for frozen := time.Now(); time.Since(frozen) < limit.Lease; time.Sleep(20 * time.Millisecond) {
		_, _, err := places.TryAcquire(context.Background(), hung, limit, 1)
		expect(t, errors.Is(err, throttr.ErrUnavailable), "a place of the node that hangs: %v", err)
		h, ok, err := places.TryAcquire(context.Background(), healthy, limit, 1)
		expect(t, ok, "a place of a node that is there: %v", err)
		h.Release()
	}
	expect(t, !lost.Valid() && kept.Valid(), "the place of the node that hangs is valid: %v; the other: %v", lost.Valid(), kept.Valid())
}

// A give-back whose response is cut off is made once, also if the reservation is canceled again.
func TestGiveBacksThatAreCutOff(t *testing.T) {
	s := testkit.StartRedis(t)
	var next atomic.Bool
	addr := testkit.CutResponses(t, s, &next)
	client := connectTo(t, rueidis.ClientOption{
		InitAddress: []string{addr}, ConnWriteTimeout: patience, PipelineMultiplex: -1, // one connection
	})
	limiter, direct := throttr.NewRateLimit(redisbackend.New(client)), redisbackend.New(connect(t, s))
	l := limitOf(window.FixedWindow, time.Hour, 10)
	must(t, direct.Take, "k", l, 3)
	for range 5 {
		rv, ok, err := limiter.Reserve(t.Context(), l.For("k", 5))
		expect(t, ok && err == nil, "%v, %v", ok, err)
		next.Store(true)
		err = rv.Cancel(t.Context())
		expect(t, errors.Is(err, throttr.ErrUnavailable), "the give-back got a response: %v", err)
		noError(t, rv.Cancel(t.Context())) // it does nothing
		count := must(t, direct.Peek, "k", l, 0).Count
		expect(t, count == 3, "the count is %d", count)
	}
}
