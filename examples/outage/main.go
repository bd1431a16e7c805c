// Outage shows what a limiter decides while its store is away, under each policy: it takes a mock server away, and
// gives it back.
//
//	go run ./examples/outage
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	local := memory.New() // counts what this process does
	defer local.Close()
	for _, p := range []struct {
		name   string
		option throttr.Option
	}{
		{"return an error", throttr.WithPolicy(throttr.ReturnError)},
		{"allow hits", throttr.WithPolicy(throttr.AllowHits)},
		{"deny hits", throttr.WithPolicy(throttr.DenyHits)},
		{"fallback in memory", throttr.WithFallback(local)},
	} {
		fmt.Fprintf(out, "%s:\n", p.name)
		if err := show(ctx, out, p.option); err != nil {
			return err
		}
	}
	return nil
}

// show makes hits before, during and after an outage.
func show(ctx context.Context, out io.Writer, option throttr.Option) error {
	srv, err := mockserver.Start()
	if err != nil {
		return err
	}
	defer srv.Close()
	backend, err := throttr.Open(ctx, "throttr://"+srv.Addr()+"?lazy=true") // it may also be away at the start
	if err != nil {
		return err
	}
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, option, throttr.WithLogger(nil))
	hit := func() (byStore bool, text string) {
		res, err := limiter.Hit(ctx, "user:42", time.Hour, 2)
		switch {
		case errors.Is(err, throttr.ErrUnavailable):
			return false, "an error: the store is away"
		case err != nil:
			return false, err.Error()
		case res.Degraded:
			return false, fmt.Sprintf("allowed: %v, without the store", res.Allowed)
		}
		return true, fmt.Sprintf("allowed: %v, by the store", res.Allowed)
	}
	await := func(byStore bool) { // hits until the store decides, or something else
		ok, text := hit()
		deadline := time.Now().Add(10 * time.Second)
		for ok != byStore && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			ok, text = hit()
		}
		fmt.Fprintln(out, " ", text)
	}
	await(true)
	srv.Refuse(true)
	srv.Disconnect()
	await(false)
	srv.Refuse(false)
	await(true)
	return nil
}
