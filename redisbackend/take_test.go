package redisbackend_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

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
