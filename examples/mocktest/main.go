// Mocktest demonstrates how to test code with a rate limit: on a mock server, in bubbles of testing/synctest,
// so that tests need neither a server nor time. The code is in login.go, and the tests
// are in login_test.go. This program calls the code with a few passwords.
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
	srv, err := mockserver.Start(mockserver.WithValueSize(uint16.Size))
	if err != nil {
		return err
	}
	defer srv.Close()
	client, err := throttr.Connect[uint16.Value](ctx, throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		return err
	}
	defer client.Close()

	auth := &auth{limiter: throttr.NewRateLimit(client.Backend())}
	for range attempts + 1 {
		fmt.Println("wrong password:", auth.login(ctx, "alice", "guess"))
	}
	return nil
}
