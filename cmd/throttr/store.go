package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	_ "github.com/throttr-go/throttr/postgresbackend" // postgres://
	_ "github.com/throttr-go/throttr/redisbackend"    // redis://
)

// url returns the URL of the store.
func (e *env) url() string {
	text := cmp.Or(e.store, os.Getenv("THROTTR_URL"), throttr.DefaultServer)
	if !strings.Contains(text, "://") {
		return "throttr://" + text
	}
	return text
}

// with returns an action that prints a table with some columns. It opens a store, or connects a client, calls do, and
// closes it, all within the timeout.
func with[C io.Closer](e *env, open func(context.Context) (C, error), columns []string,
	do func(ctx context.Context, c C, args []string) (bool, error)) action {
	return func(ctx context.Context, args []string) (bool, error) {
		e.out.columns(columns...)
		return within(ctx, e.timeout, func(ctx context.Context) (bool, error) {
			c, err := open(ctx)
			if err != nil {
				return false, err
			}
			defer c.Close()
			return do(ctx, c, args)
		})
	}
}

// onKey does something with a key. It returns false if the outcome is negative.
type onKey[C any] func(ctx context.Context, c C, key string) (bool, error)

// forKeys is like with. The arguments are keys, and do is called with each.
func forKeys[C io.Closer](e *env, open func(context.Context) (C, error), columns []string, do onKey[C]) action {
	return with(e, open, columns, func(ctx context.Context, c C, keys []string) (bool, error) {
		return forAll(keys, func(key string) (bool, error) { return do(ctx, c, key) })
	})
}

// open opens the store, although its URL may say that it is lazy: a person waits, and wants to know.
func (e *env) open(ctx context.Context) (*throttr.OpenBackend, error) {
	address, query, _ := strings.Cut(e.url(), "?")
	others := slices.DeleteFunc(strings.Split(query, "&"), // as they are: drivers differ in how they decode them
		func(p string) bool { return strings.HasPrefix(p, "lazy=") })
	return throttr.Open(ctx, strings.TrimSuffix(address+"?"+strings.Join(others, "&"), "?"))
}

// ping is the command ping.
func ping(e *env, _ *flags) action {
	return with(e, e.open, nil, func(ctx context.Context, b *throttr.OpenBackend, _ []string) (bool, error) {
		start := time.Now()
		if err := b.Ping(ctx); err != nil {
			return false, err
		}
		took := time.Since(start)
		e.out.add(map[string]float64{"seconds": took.Seconds()}, "it is there: it took "+left(took))
		return true, nil
	})
}
