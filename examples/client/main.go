// Client demonstrates the typed client: counters, buffers, a batch, many goroutines that share
// connections, and errors. It runs on a mock server in this process.
//
//	go run ./examples/client
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	srv, err := mockserver.Start(mockserver.WithValueSize(uint16.Size))
	if err != nil {
		return err
	}
	defer srv.Close()

	// The zero Config means a server on port 9000 of this machine. The mock server has another
	// port.
	client, err := throttr.Connect[uint16.Value](ctx, throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		return err
	}
	defer client.Close()

	for _, step := range []func(context.Context, *throttr.Client[uint16.Value], io.Writer) error{
		counters, buffers, batch, concurrent, mistakes,
	} {
		if err := step(ctx, client, out); err != nil {
			return err
		}
	}
	for _, s := range client.Stats().Servers {
		fmt.Fprintf(out, "stats: %d responses over %d connections\n", s.Answered, s.Dials)
	}
	return nil
}

// counters makes, updates and queries a counter.
func counters(ctx context.Context, client *throttr.Client[uint16.Value], out io.Writer) error {
	ttl, err := uint16.TTLOf(time.Minute)
	if err != nil {
		return err
	}
	created, err := client.Insert(ctx, "stock:apples", 10, ttl)
	if err != nil {
		return err
	}
	again, err := client.Insert(ctx, "stock:apples", 99, ttl) // it exists: created is false, and there is no error
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "INSERT: %v, and once more: %v\n", created, again)

	sold, err := client.Update(ctx, "stock:apples", codec.Quota, codec.Decrease, 4)
	if err != nil {
		return err
	}
	tooMany, err := client.Update(ctx, "stock:apples", codec.Quota, codec.Decrease, 7)
	if err != nil {
		return err
	}
	apples, found, err := client.Query(ctx, "stock:apples")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "DECREASE by 4: %v, by 7: %v; left: %d (found: %v)\n", sold, tooMany, apples.Quota, found)

	_, err = client.Purge(ctx, "stock:apples")
	return err
}

// buffers stores and reads bytes.
func buffers(ctx context.Context, client *throttr.Client[uint16.Value], out io.Writer) error {
	ttl, err := uint16.TTLOf(time.Hour)
	if err != nil {
		return err
	}
	if _, err := client.Set(ctx, "motd", []byte("apples are on sale"), ttl); err != nil {
		return err
	}
	motd, found, err := client.Get(ctx, "motd")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "GET: %q (found: %v)\n", motd.Value, found)
	_, err = client.Purge(ctx, "motd")
	return err
}

// batch sends several requests in one round trip.
func batch(ctx context.Context, client *throttr.Client[uint16.Value], out io.Writer) error {
	ttl, err := uint16.TTLOf(time.Minute)
	if err != nil {
		return err
	}
	var b throttr.Batch[uint16.Value]
	b.Insert("tickets", 3, ttl)
	taken := b.Update("tickets", codec.Quota, codec.Decrease, 2)
	left := b.Query("tickets")
	b.Purge("tickets")
	if err := client.Do(ctx, &b); err != nil {
		return err
	}
	ok, err := taken.OK()
	if err != nil {
		return err
	}
	tickets, _, err := left.Counter()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "a batch of %d requests: taken: %v, left: %d\n", b.Len(), ok, tickets.Quota)
	return nil
}

// concurrent increases a counter in 100 goroutines. Their requests share connections.
func concurrent(ctx context.Context, client *throttr.Client[uint16.Value], out io.Writer) error {
	ttl, err := uint16.TTLOf(time.Minute)
	if err != nil {
		return err
	}
	if _, err := client.Insert(ctx, "visitors", 0, ttl); err != nil {
		return err
	}
	var visitors sync.WaitGroup
	errs := make([]error, 100)
	for i := range errs {
		visitors.Go(func() {
			_, errs[i] = client.Update(ctx, "visitors", codec.Quota, codec.Increase, 1)
		})
	}
	visitors.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n, _, err := client.Query(ctx, "visitors")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "100 goroutines: %d visitors\n", n.Quota)
	_, err = client.Purge(ctx, "visitors")
	return err
}

// mistakes causes errors. None of these requests reaches a server.
func mistakes(ctx context.Context, client *throttr.Client[uint16.Value], out io.Writer) error {
	_, err := client.Insert(ctx, "k", 1, uint16.TTL{Amount: 0, Unit: codec.Seconds})
	fmt.Fprintf(out, "a TTL of 0: %v (is ErrTTL: %v)\n", err, errors.Is(err, throttr.ErrTTL))

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, _, err = client.Query(canceled, "k")
	var failed *throttr.RequestError
	safe := errors.As(err, &failed) && failed.SafeToRetry()
	fmt.Fprintf(out, "a canceled context: %v (safe to retry: %v)\n", errors.Is(err, context.Canceled), safe)
	return nil
}
