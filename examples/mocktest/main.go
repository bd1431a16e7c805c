// Mocktest shows how to test code that is rate limited, with no server and without
// waiting: a mock server with a virtual clock. The code is login.go, and the tests are
// login_test.go. This program only tries the code, for as long as the clock stands still.
//
//	go run ./examples/mocktest
//	go test ./examples/mocktest
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	srv, err := mockserver.Start(mockserver.WithValueSize(uint16.Size), mockserver.WithVirtualClock())
	if err != nil {
		return err
	}
	defer srv.Close()
	client, err := throttr.Connect[uint16.Value](ctx, throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		return err
	}
	defer client.Close()

	door := &door{limiter: throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now)))}
	for range attempts + 1 {
		fmt.Println("wrong password:", door.login(ctx, "alice", "guess"))
	}
	srv.Advance(period)
	fmt.Printf("%v later: %v\n", period, door.login(ctx, "alice", "secret"))
	return nil
}
