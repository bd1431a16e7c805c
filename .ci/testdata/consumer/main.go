// Consumer is a program that requires the released modules. Its tests use each of them.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

func main() {
	limiter := throttr.NewRateLimit(memory.New())
	for range 3 {
		fmt.Println(limiter.Hit(context.Background(), "user:42", time.Minute, 2))
	}
}
