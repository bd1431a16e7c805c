package goredis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr/internal/testkit"
)

func TestASubscriptionReceivesWhatIsPublished(t *testing.T) {
	s := testkit.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	messages, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- newAdapter(client).Subscribe(ctx, "channel", func(m string) { messages <- m }) }()
	for s.Must(t, "PUBLISH", "channel", "a message") == "0" { // it is not there yet
		time.Sleep(10 * time.Millisecond)
	}
	got := <-messages
	testkit.Expect(t, got == "a message", "%q is received", got)
	cancel()
	err := <-ended
	testkit.Expect(t, err != nil, "a subscription ends without an error")
}
