package goredis

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr/internal/testkit"
)

func TestASubscriptionIsConfirmedBeforeItsMessages(t *testing.T) {
	s := testkit.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	testkit.Subscribes(t, s, newAdapter(client))
}
