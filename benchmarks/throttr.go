package main

import (
	"context"
	"fmt"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

// mock and slow say on which server a contender counts.
func mock(s *servers) string { return s.mock.addr }
func slow(s *servers) string { return s.slow.addr }

// connect returns a client with its defaults.
func connect(ctx context.Context, server string) (*throttr.Client[uint32], error) {
	return throttr.Connect[uint32](ctx, throttr.Config{Servers: []string{server}})
}

func throttrIncrease(name string, server func(*servers) string) contender {
	return contender{
		name: name,
		does: "UPDATE INCREASE of a counter that is there; a plain count",
		start: func(ctx context.Context, j job) (*subject, error) {
			client, err := connect(ctx, server(j.servers))
			if err != nil {
				return nil, err
			}
			var batch throttr.Batch[uint32]
			for i := range j.keys { // those that are there already stay
				batch.Insert(key(i), 0, codec.TTL[uint32]{Amount: 12, Unit: codec.Hours})
			}
			if err := client.Do(ctx, &batch); err != nil {
				client.Close()
				return nil, err
			}
			return &subject{
				do: func(ctx context.Context, key string) (bool, error) {
					ok, err := client.Update(ctx, key, codec.Quota, codec.Increase, 1)
					if err == nil && !ok {
						err = fmt.Errorf("there is no counter %q", key)
					}
					return true, err
				},
				close: func() { client.Close() },
			}, nil
		},
	}
}

func throttrHit(name string, server func(*servers) string) contender {
	return contender{
		name: name,
		does: "`RateLimit.Hit` on a server: an exact fixed window per key, that opens with the first hit; UPDATE and QUERY in " +
			"one round trip, which hits of one key at the same time share",
		start: func(ctx context.Context, j job) (*subject, error) {
			client, err := connect(ctx, server(j.servers))
			if err != nil {
				return nil, err
			}
			return &subject{do: hits(client.Backend(), j.limit), close: func() { client.Close() }}, nil
		},
	}
}

// hits returns hits of the windows that a backend keeps.
func hits(backend throttr.Backend, limit int) func(context.Context, string) (bool, error) {
	limiter, most := throttr.NewRateLimit(backend), uint64(limit)
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Hit(ctx, key, window, most)
		return res.Allowed, err
	}
}
