package redisbackend_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// Two HTTP servers share a limit of one stream.
//
//evidence:http No place is left over by a browser that leaves, a handler that panics, a server that is closed
func TestStreamsOfTwoServersLeaveNoPlace(t *testing.T) {
	s := testkit.StartRedis(t)
	var backends [2]window.Backend
	for i := range backends {
		backends[i] = redisbackend.New(connectTo(t, rueidis.ClientOption{InitAddress: []string{s.Addr}, ConnWriteTimeout: patience}))
	}
	testkit.StreamsLeaveNoPlace(t, backends)
}
