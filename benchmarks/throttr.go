package main

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/dial"
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

// connectTo returns a client of a server that has a counter for each key. One of an earlier round stays as it is.
func connectTo(ctx context.Context, server string, keys load.KeySet) (*throttr.Client[uint32], error) {
	client, err := connect(ctx, server)
	if err != nil {
		return nil, err
	}
	var batch throttr.Batch[uint32]
	for i := range keys.N {
		batch.Insert(keys.Key(i), 0, load.TTL[uint32]())
	}
	if err := client.Do(ctx, &batch); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// counters returns a contender that does something to a counter.
func counters(name, does string, server func(*servers) string, do func(ctx context.Context, c *throttr.Client[uint32], key string) (bool, error)) contender {
	return contender{
		name: name,
		does: does,
		start: func(ctx context.Context, s setup) (*instance, error) {
			client, err := connectTo(ctx, server(s.servers), keySet(s.keys))
			if err != nil {
				return nil, err
			}
			return &instance{
				do: func(ctx context.Context, key string) (bool, error) {
					ok, err := do(ctx, client, key)
					if err == nil && !ok {
						err = fmt.Errorf("there is no counter %q", key)
					}
					return true, err
				},
				conns: func() int { return client.Stats().Servers[0].Conns },
				close: func() { client.Close() },
			}, nil
		},
	}
}

func throttrIncrease(name string, server func(*servers) string) contender {
	return counters(name, "UPDATE INCREASE of a counter that exists; a plain count", server,
		func(ctx context.Context, c *throttr.Client[uint32], key string) (bool, error) {
			return c.Update(ctx, key, codec.Quota, codec.Increase, 1)
		})
}

var throttrQuery = counters(ours, "QUERY of a counter that exists", mock,
	func(ctx context.Context, c *throttr.Client[uint32], key string) (bool, error) {
		_, ok, err := c.Query(ctx, key)
		return ok, err
	})

// rawFrames returns a contender that writes the frames of a workload without a client.
func rawFrames(name string, w load.Workload, server func(*servers) string) contender {
	return contender{
		name: name,
		does: "no client: it writes encoded frames, and counts the bytes of the responses",
		start: func(ctx context.Context, s setup) (*instance, error) {
			keys := keySet(s.keys)
			if w == load.Hit { // its records have longer names than counters
				keys.Prefix = "rl:1h0m0s:000000:key:"
			}
			client, err := connectTo(ctx, server(s.servers), keys)
			if err != nil {
				return nil, err
			}
			client.Close()
			frames := load.FramesOf[uint32](w)
			needed := (s.goroutines*frames.Responses + load.MaxResponses - 1) / load.MaxResponses
			r, err := load.NewRaw(ctx, load.RawConfig{
				Servers: []dial.Address{{Network: "tcp", Address: server(s.servers)}},
				Conns:   max(s.conns, needed), Outstanding: s.goroutines, Frames: frames, Keys: keys,
			})
			if err != nil {
				return nil, err
			}
			run := func(ctx context.Context, cfg load.Config, _ load.Keys) (load.Result, error) {
				return r.Measure(ctx, cfg)
			}
			return &instance{run: run, close: r.Close}, nil
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
			return &instance{
				do:    hits(client.Backend(), s),
				conns: func() int { return client.Stats().Servers[0].Conns },
				close: func() { client.Close() },
			}, nil
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
