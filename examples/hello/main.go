package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/throttr-go/throttr"
)

func main() {
	ctx := context.Background()
	backend, err := throttr.Open(ctx, "memory://") // in this process
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	limiter := throttr.NewRateLimit(backend)
	for range 4 {
		res, err := limiter.Hit(ctx, "user:42", time.Minute, 3)
		if err != nil {
			log.Fatal(err) // no decision
		}
		fmt.Printf("allowed: %v, %d remaining\n", res.Allowed, res.Remaining)
	}
}
