package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

func ExampleConnect() {
	ctx := context.Background()
	srv, err := mockserver.Start(mockserver.WithValueSize(2))
	if err != nil {
		panic(err)
	}
	defer srv.Close()

	client, err := throttr.Connect[uint16](ctx, throttr.Config{
		Servers:        []string{srv.Addr()},
		ConnectTimeout: 2 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	fmt.Println(client.Insert(ctx, "k", 5, codec.TTL[uint16]{Amount: 60, Unit: codec.Seconds}))
	// Output: true <nil>
}

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

func ExampleConfig() {
	ctx := context.Background()
	srv, err := mockserver.Start(mockserver.WithAddr("unix", fmt.Sprintf("%s/throttr-example-%d", os.TempDir(), os.Getpid())))
	if err != nil {
		panic(err)
	}
	defer srv.Close()

	// What is zero has its default.
	client, err := throttr.Connect[uint16](ctx, throttr.Config{
		Servers:      []string{srv.Addr()}, // unix:///…
		MaxConns:     1,
		StallTimeout: time.Second,
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	fmt.Println(client.Purge(ctx, "k"))
	// Output: false <nil>
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

func ExampleClient_Insert() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	fmt.Println(client.Insert(ctx, "k", 5, seconds(60)))
	fmt.Println(client.Insert(ctx, "k", 7, seconds(60))) // the key exists: false, and nothing changes
	_, err := client.Insert(ctx, "dead", 5, seconds(0))
	fmt.Println(err)
	// Output:
	// true <nil>
	// false <nil>
	// throttr: TTL out of range: 0 is dead at once
}

func ExampleClient_Query() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(60))
	srv.Advance(20500 * time.Millisecond)
	c, found, err := client.Query(ctx, "k")
	fmt.Println(c.Quota, c.TTL, found, err) // what is left is floored to the unit
	_, found, err = client.Query(ctx, "none")
	fmt.Println(found, err)
	// Output:
	// 5 39s true <nil>
	// false <nil>
}

func ExampleClient_Update() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(60))
	fmt.Println(client.Update(ctx, "k", codec.Quota, codec.Increase, 3))
	fmt.Println(client.Update(ctx, "k", codec.Quota, codec.Decrease, 9)) // would go below zero: false
	fmt.Println(client.Update(ctx, "k", codec.TimeToLive, codec.Patch, 90))
	c, _, _ := client.Query(ctx, "k")
	fmt.Println(c.Quota, c.TTL)
	// Output:
	// true <nil>
	// false <nil>
	// true <nil>
	// 8 89s
}

func ExampleClient_Purge() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(60))
	fmt.Println(client.Purge(ctx, "k"))
	fmt.Println(client.Purge(ctx, "k")) // nothing there any more: false
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleClient_Set() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	fmt.Println(client.Set(ctx, "greeting", []byte("hello"), seconds(60)))
	fmt.Println(client.Set(ctx, "greeting", []byte("good morning"), seconds(60))) // overwrites
	client.Insert(ctx, "counter", 1, seconds(60))
	fmt.Println(client.Set(ctx, "counter", []byte("hello"), seconds(60))) // is a counter: false
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

func ExampleClient_Get() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Set(ctx, "greeting", []byte("hello"), seconds(60))
	b, found, err := client.Get(ctx, "greeting")
	fmt.Printf("%s %v %v\n", b.Value, found, err)
	_, found, err = client.Get(ctx, "none")
	fmt.Println(found, err)
	// Output:
	// hello true <nil>
	// false <nil>
}

func ExampleClient_Do() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	var b throttr.Batch[uint16]
	b.Insert("k", 5, seconds(60))
	increase := b.Update("k", codec.Quota, codec.Increase, 3)
	query := b.Query("k")
	if err := client.Do(ctx, &b); err != nil { // one write, one round trip
		panic(err)
	}
	fmt.Println(increase.OK())
	c, found, err := query.Counter()
	fmt.Println(c.Quota, found, err)
	// Output:
	// true <nil>
	// 8 true <nil>
}

func ExampleBatch() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	var b throttr.Batch[uint16] // the zero value is empty
	set := b.Set("greeting", []byte("hello"), seconds(60))
	get := b.Get("greeting")
	purge := b.Purge("none")
	fmt.Println(b.Len())

	_, err := set.OK()
	fmt.Println(err) // no answer yet
	if err := client.Do(ctx, &b); err != nil {
		panic(err)
	}
	fmt.Println(set.OK())
	greeting, found, err := get.Buffer()
	fmt.Printf("%s %v %v\n", greeting.Value, found, err)
	fmt.Println(purge.OK())

	b.Reset() // for the next requests
	fmt.Println(b.Len())
	// Output:
	// 3
	// throttr: batch used out of order: no response yet: the batch has not been sent
	// true <nil>
	// hello true <nil>
	// false <nil>
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

func ExampleClient_Close() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Close()
	_, _, err := client.Query(ctx, "k")
	fmt.Println(errors.Is(err, throttr.ErrClosed))
	// Output: true
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

func ExampleRequestError_Timeout() {
	srv, client, end := exampleServer()
	defer end()
	defer srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second})()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, _, err := client.Query(ctx, "k")
	var failed *throttr.RequestError
	fmt.Println(errors.As(err, &failed) && failed.Timeout())
	// Output: true
}
