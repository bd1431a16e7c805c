package goredis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend/goredis"
)

// The example needs a server, so it is compiled but not run. With several Addrs, the client is one
// of a cluster, and with a MasterName, one of Sentinel.
func ExampleNew() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}})
	defer client.Close()

	limiter := throttr.NewRateLimit(goredis.New(client))
	res, err := limiter.Hit(context.Background(), "user:42", time.Minute, 100)
	if err != nil {
		log.Fatal(err) // no decision, for example because the server is down
	}
	fmt.Println(res)
}
