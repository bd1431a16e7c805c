package redisbackend_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
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

// Some nodes of a cluster suffice: the client finds the others.
func ExampleNew_cluster() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"10.0.0.1:6379", "10.0.0.2:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	backend := redisbackend.New(client,
		rediswindow.WithPrefix("api:limits:"))
	w, err := backend.Hit(context.Background(), "user:42", limitOf(window.AlignedWindow, time.Hour, 1000), 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("hit %d of 1000, until %v\n", w.Count, w.ExpiresAt)
}
