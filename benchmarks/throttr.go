package main

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// patience lets calls wait for a store that all processes of the machine keep busy: what is measured is how
// long they take.
var patience = throttr.WithTimeout(10 * time.Second)

// mock and realTimes return the server of a contender.
func mock(s *servers) string      { return s.mock.addr }
func realTimes(s *servers) string { return s.real.addr }

// connect returns a client with defaults.
func connect(ctx context.Context, server string) (*throttr.Client[uint32], error) {
	return throttr.Connect[uint32](ctx, throttr.Config{Servers: []string{server}})
}

func throttrIncrease(name string, server func(*servers) string) contender {
	return contender{
		name: name,
		does: "UPDATE INCREASE of a counter that exists; a plain count",
		start: func(ctx context.Context, s setup) (*instance, error) {
			client, err := connect(ctx, server(s.servers))
			if err != nil {
				return nil, err
			}
			var batch throttr.Batch[uint32]
			for i := range s.keys { // a counter of an earlier round stays as it is
				batch.Insert(sequence.Key(i), 0, load.TTL[uint32]())
			}
			if err := client.Do(ctx, &batch); err != nil {
				client.Close()
				return nil, err
			}
			return &instance{
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
		does: "`RateLimit.Hit` on a server: an exact fixed window per key, which the first hit opens; UPDATE and QUERY in one " +
			"round trip, which concurrent hits of one key share",
		start: func(ctx context.Context, s setup) (*instance, error) {
			client, err := connect(ctx, server(s.servers))
			if err != nil {
				return nil, err
			}
			return &instance{do: hits(client.Backend(), s), close: func() { client.Close() }}, nil
		},
	}
}

// hits returns an operation that hits a window of a backend.
func hits(backend throttr.Backend, s setup, opts ...throttr.Option) func(context.Context, string) (bool, error) {
	limiter, most := throttr.NewRateLimit(backend, append(opts, patience)...), uint64(s.limit)
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Hit(ctx, key, s.scale, most)
		return res.Allowed, err
	}
}
