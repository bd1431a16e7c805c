package main

import (
	"cmp"
	"context"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
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

// with opens a store, or connects a client, calls f, and closes it, all within the timeout.
func with[C io.Closer](ctx context.Context, e *env, open func(context.Context) (C, error),
	f func(ctx context.Context, c C) (bool, error)) (bool, error) {
	return within(ctx, e.timeout, func(ctx context.Context) (bool, error) {
		c, err := open(ctx)
		if err != nil {
			return false, err
		}
		defer c.Close()
		return f(ctx, c)
	})
}

// onKey does something with a key. It returns false if the outcome is negative.
type onKey[C any] func(ctx context.Context, c C, key string) (bool, error)

// forKeys is with, and does something with each key.
func forKeys[C io.Closer](ctx context.Context, e *env, open func(context.Context) (C, error), keys []string,
	do onKey[C]) (bool, error) {
	return with(ctx, e, open, func(ctx context.Context, c C) (bool, error) {
		return forAll(keys, func(key string) (bool, error) { return do(ctx, c, key) })
	})
}

// open opens the store, although its URL may say that it is lazy: a person waits, and wants to know.
func (e *env) open(ctx context.Context) (*throttr.OpenBackend, error) {
	text := e.url()
	address, query, _ := strings.Cut(text, "?")
	parameters, err := url.ParseQuery(query)
	if _, not := strconv.ParseBool(parameters.Get("lazy")); err == nil && not == nil {
		others := slices.DeleteFunc(strings.Split(query, "&"),
			func(p string) bool { return strings.HasPrefix(p, "lazy=") })
		text = address + "?" + strings.Join(others, "&") // as they are: drivers differ in how they decode them
	}
	return throttr.Open(ctx, text)
}

// ping is the command ping.
func ping(e *env, _ *flags) action {
	return func(ctx context.Context, _ []string) (bool, error) {
		return with(ctx, e, e.open, func(ctx context.Context, b *throttr.OpenBackend) (bool, error) {
			start := time.Now()
			if err := b.Ping(ctx); err != nil {
				return false, err
			}
			took := time.Since(start)
			e.out.add(map[string]float64{"seconds": took.Seconds()}, "it is there: it took "+left(took))
			return true, nil
		})
	}
}
