package redisbackend_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
)

// The examples need a server, so they are compiled but not run.

func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	limiter := throttr.NewRateLimit(redisbackend.New(client))
	res, err := limiter.Hit(context.Background(), "user:42", time.Minute, 100)
	if err != nil {
		log.Fatal(err) // no decision, for example because the server is down
	}
	fmt.Println(res)
}
