package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

func ExampleConnect_wrongValueSize() {
	srv, err := mockserver.Start(mockserver.WithValueSize(4))
	if err != nil {
		panic(err)
	}
	defer srv.Close()

	_, err = throttr.Connect[uint16](context.Background(), throttr.Config{Servers: []string{srv.Addr()}})
	fmt.Println(errors.Is(err, throttr.ErrValueSizeMismatch))
	var size *throttr.ValueSizeError
	if errors.As(err, &size) {
		fmt.Printf("ours: %d bytes, the server's: %d bytes\n", size.Client, size.Actual)
	}
	// Output:
	// true
	// ours: 2 bytes, the server's: 4 bytes
}

func ExampleParseURL() {
	cfg, err := throttr.ParseURL("throttr://h1:9000,h2?max_conns=2&stall_timeout=500ms")
	if err != nil {
		panic(err)
	}
	fmt.Println(cfg.Servers, cfg.MaxConns, cfg.StallTimeout)

	_, err = throttr.ParseURL("throttr://h1?max_cons=2")
	fmt.Println(err)
	// Output:
	// [h1:9000 h2:9000] 2 500ms
	// throttr: invalid configuration: URL parameter "max_cons" is unknown
}

func ExampleClient() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()

	fmt.Println(client.Insert(ctx, "k", 5, seconds(60)))
	fmt.Println(client.Insert(ctx, "k", 7, seconds(60))) // the key exists: false, and nothing changes
	fmt.Println(client.Update(ctx, "k", codec.Quota, codec.Increase, 3))
	fmt.Println(client.Update(ctx, "k", codec.Quota, codec.Decrease, 9)) // would go below zero: false
	fmt.Println(client.Update(ctx, "k", codec.TimeToLive, codec.Patch, 90))
	srv.Advance(20500 * time.Millisecond)
	c, found, err := client.Query(ctx, "k")
	fmt.Println(c.Quota, c.TTL, found, err) // what is left is floored to the unit
	fmt.Println(client.Purge(ctx, "k"))
	fmt.Println(client.Purge(ctx, "k")) // nothing there any more: false
	// Output:
	// true <nil>
	// false <nil>
	// true <nil>
	// false <nil>
	// true <nil>
	// 8 69s true <nil>
	// true <nil>
	// false <nil>
}

func ExampleClient_Set() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	fmt.Println(client.Set(ctx, "greeting", []byte("hello"), seconds(60)))
	fmt.Println(client.Set(ctx, "greeting", []byte("good morning"), seconds(60))) // overwrites
	b, found, err := client.Get(ctx, "greeting")
	fmt.Printf("%s %v %v\n", b.Value, found, err)
	client.Insert(ctx, "counter", 1, seconds(60))
	fmt.Println(client.Set(ctx, "counter", []byte("hello"), seconds(60))) // is a counter: false
	// Output:
	// true <nil>
	// true <nil>
	// good morning true <nil>
	// false <nil>
}

func ExampleBatch() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	var b throttr.Batch[uint16] // the zero value is empty
	b.Insert("k", 5, seconds(60))
	increase := b.Update("k", codec.Quota, codec.Increase, 3)
	query := b.Query("k")
	set := b.Set("greeting", []byte("hello"), seconds(60))
	get := b.Get("greeting")
	_, err := set.OK()
	fmt.Println(err)                           // no answer yet
	if err := client.Do(ctx, &b); err != nil { // one write, one round trip
		panic(err)
	}
	fmt.Println(increase.OK())
	c, found, err := query.Counter()
	fmt.Println(c.Quota, found, err)
	greeting, found, err := get.Buffer()
	fmt.Printf("%s %v %v\n", greeting.Value, found, err)
	b.Reset() // for the next requests
	fmt.Println(b.Len())
	// Output:
	// throttr: batch used out of order: no response yet: the batch has not been sent
	// true <nil>
	// 8 true <nil>
	// hello true <nil>
	// 0
}

func ExampleClient_Stats() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(60))
	client.Query(ctx, "k")
	for _, s := range client.Stats().Servers {
		fmt.Println("connections:", s.Conns, "failures:", s.Failures, "locked up:", s.LockedUp)
	}
	// Output: connections: 1 failures: 0 locked up: false
}

func ExampleRequestError() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()
	srv.Inject(mockserver.Fault{Op: codec.OpInsert, Disconnect: true}) // executes, and hangs up

	_, err := client.Insert(ctx, "k", 5, seconds(60))
	var failed *throttr.RequestError
	if errors.As(err, &failed) {
		fmt.Println(failed.Op, "safe to retry:", failed.SafeToRetry())
	}
	fmt.Println(errors.Is(err, throttr.ErrConnLost))
	// Output:
	// INSERT safe to retry: false
	// true
}
