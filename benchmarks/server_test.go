package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// BenchmarkServer asks what calls of a Throttr server cost: that of THROTTR_SERVERS, with values of 4 bytes, or a
// mock server, which only counts, and one that takes as long as a real one.
func BenchmarkServer(b *testing.B) {
	if os.Getenv("THROTTR_SERVERS") != "" {
		compareOn(b, "server")
		return
	}
	compareOn(b, "mock")
	compareOn(b, "mock, real times", mockserver.WithRealServiceTime())
}

func compareOn(b *testing.B, name string, opts ...mockserver.Option) {
	var contenders []contender
	for _, do := range []string{"hit", "increase", "query"} {
		contenders = append(contenders, contender{do + ", " + name, onServer(do, opts)})
	}
	compare(b, []load{{1000, 1, true}, {1000, 64, true}, {1000, 512, true}, {1, 64, true}}, contenders...)
}

// onServer hits a window, or does something to a counter, which is made if it is missing.
func onServer(do string, opts []mockserver.Option) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		addr, end := os.Getenv("THROTTR_SERVERS"), func() {}
		if addr == "" {
			srv := must(mockserver.Start(append(opts, mockserver.WithValueSize(4))...))(b)
			addr, end = srv.Addr(), func() { srv.Close() }
		}
		client := must(throttr.Connect[uint32](b.Context(), throttr.Config{Servers: []string{addr}}))(b)
		r := throttr.NewRateLimit(client.Backend(), throttr.WithTimeout(10*time.Second))
		return func(ctx context.Context, key string) (err error) {
			ok := false
			switch do {
			case "hit":
				res, err := r.Hit(ctx, key, scale, most)
				return allowed(res.Allowed, err)
			case "increase":
				ok, err = client.Update(ctx, key, codec.Quota, codec.Increase, 1)
			case "query":
				_, ok, err = client.Query(ctx, key)
			}
			if err == nil && !ok {
				_, err = client.Insert(ctx, key, 1, codec.TTL[uint32]{Amount: 1, Unit: codec.Hours})
			}
			return err
		}, func() { client.Close(); end() }
	}
}
