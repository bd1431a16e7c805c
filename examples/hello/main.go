package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

func main() {
	limiter := throttr.NewRateLimit(memory.New())
	for range 4 {
		res, err := limiter.Hit(context.Background(), "user:42", time.Minute, 3)
		if err != nil {
			log.Fatal(err) // no decision
		}
		fmt.Printf("allowed: %v, %d remaining\n", res.Allowed, res.Remaining)
	}
}
