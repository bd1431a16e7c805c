package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

// load is clients and their servers.
type load struct {
	seed     uint64
	servers  []*mockserver.Server
	clients  []*throttr.Client[uint16]
	limiters []*throttr.RateLimit
	local    *memory.Backend

	done, failed atomic.Uint64 // calls
	faults       atomic.Uint64
}

const (
	servers = 2
	clients = 2
	// maxWindows bounds the windows that a backend remembers. It is small, so that it is reached
	// within seconds.
	maxWindows = 1 << 11
	// inventedKeys is the number of keys that are seldom hit. It bounds the records on the servers, so
	// that they stop growing within seconds, too.
	inventedKeys = maxWindows + maxWindows/8
)

// newLoad starts servers and connects clients with short timeouts and pauses.
func newLoad(seed uint64) (*load, error) {
	l := &load{seed: seed, local: memory.New(memory.WithMaxKeys(maxWindows), memory.WithOverflow(memory.Evict))}
	cfg := throttr.Config{
		MaxConns: 3, MaxQueued: 1 << 10, ConnectTimeout: 500 * time.Millisecond, StallTimeout: 200 * time.Millisecond,
		MaxConnAge: 2 * time.Second, HealthInterval: 250 * time.Millisecond,
		MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	}
	for range servers {
		srv, err := mockserver.Start()
		if err != nil {
			l.close()
			return nil, err
		}
		l.servers = append(l.servers, srv)
		cfg.Servers = append(cfg.Servers, srv.Addr())
	}
	for range clients {
		client, err := throttr.Connect[uint16](context.Background(), cfg)
		if err != nil {
			l.close()
			return nil, err
		}
		l.clients = append(l.clients, client)
		backend := client.Backend(throttr.WithMaxWindows(maxWindows))
		l.limiters = append(l.limiters,
			throttr.NewRateLimit(backend, throttr.WithTimeout(100*time.Millisecond)),
			throttr.NewRateLimit(backend, throttr.WithFallback(l.local)))
	}
	return l, nil
}

// close closes everything.
func (l *load) close() {
	for _, c := range l.clients {
		c.Close()
	}
	for _, s := range l.servers {
		s.Close()
	}
	l.local.Close()
}

// run uses the clients until ctx ends.
func (l *load) run(ctx context.Context) {
	var all sync.WaitGroup
	n := uint64(0)
	start := func(goroutines int, work func(context.Context, *rand.Rand) error) {
		for range goroutines {
			n++
			r := rand.New(rand.NewPCG(l.seed, n))
			all.Go(func() { l.repeat(ctx, r, work) })
		}
	}
	for _, limiter := range l.limiters {
		start(32, func(ctx context.Context, r *rand.Rand) error {
			_, err := limiter.Hit(ctx, fmt.Sprintf("hot:%d", r.IntN(16)), 500*time.Millisecond, 1000)
			return err
		})
		start(16, func(ctx context.Context, r *rand.Rand) error {
			_, err := limiter.Hit(ctx, fmt.Sprintf("invented:%d", r.IntN(inventedKeys)), 250*time.Millisecond, 10)
			return err
		})
		start(2, func(ctx context.Context, r *rand.Rand) error {
			return limiter.Reset(ctx, fmt.Sprintf("hot:%d", r.IntN(16)), 500*time.Millisecond)
		})
	}
	for _, c := range l.clients {
		start(8, func(ctx context.Context, r *rand.Rand) error { return batch(ctx, c, r) })
		start(2, func(ctx context.Context, _ *rand.Rand) error {
			for _, err := range c.List(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		start(4, func(ctx context.Context, r *rand.Rand) error { return subscribe(ctx, c, r) })
		start(1, func(ctx context.Context, r *rand.Rand) error {
			_, err := c.Publish(ctx, fmt.Sprintf("channel:%d", r.IntN(4)), make([]byte, r.IntN(1000)))
			return err
		})
	}
	all.Go(func() { l.injectFaults(ctx, rand.New(rand.NewPCG(l.seed, 0))) })
	all.Wait()
}

// repeat calls work until ctx ends, with deadlines that are often too short.
func (l *load) repeat(ctx context.Context, r *rand.Rand, work func(context.Context, *rand.Rand) error) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(300))*time.Millisecond)
		err := work(one, r)
		cancel()
		if err == nil {
			l.done.Add(1)
			continue
		}
		l.failed.Add(1)
		// A server that is unavailable is an error at once. Do not spin.
		backoff.Sleep(ctx, time.Millisecond)
	}
}

// batch inserts, updates, queries and purges a record.
func batch(ctx context.Context, c *throttr.Client[uint16], r *rand.Rand) error {
	var b throttr.Batch[uint16]
	key := fmt.Sprintf("record:%d", r.IntN(1000))
	b.Insert(key, 5, codec.TTL[uint16]{Amount: 1, Unit: codec.Seconds})
	for range r.IntN(20) {
		b.Update(key, codec.Quota, codec.Increase, 1)
	}
	b.Query(key)
	b.Purge(key)
	return c.Do(ctx, &b)
}

// subscribe subscribes to a channel and receives up to 9 messages.
func subscribe(ctx context.Context, c *throttr.Client[uint16], r *rand.Rand) error {
	s, err := c.Subscribe(ctx, fmt.Sprintf("channel:%d", r.IntN(4)), pubsub.WithQueue(1+r.IntN(32)))
	if err != nil {
		return err
	}
	defer s.Close()
	for range r.IntN(10) {
		if _, err := s.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// injectFaults injects one fault after another until ctx ends.
func (l *load) injectFaults(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		srv := l.servers[r.IntN(len(l.servers))]
		undo := injectFault(ctx, srv, r)
		l.faults.Add(1)
		backoff.Sleep(ctx, time.Duration(r.IntN(100))*time.Millisecond)
		undo()
		backoff.Sleep(ctx, time.Duration(r.IntN(200))*time.Millisecond)
	}
}

// injectFault injects a random fault. Undo ends it.
func injectFault(ctx context.Context, srv *mockserver.Server, r *rand.Rand) (undo func()) {
	some := mockserver.Fault{Skip: r.IntN(1000), Times: 1 + r.IntN(3)}
	switch r.IntN(12) {
	case 0:
		srv.Disconnect()
	case 1:
		srv.HalfOpen()
	case 2, 3:
		keepData := r.IntN(2) == 0
		for srv.Restart(keepData) != nil && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond) // a connection may have been given the port
		}
	case 4:
		srv.Refuse(true)
		srv.Disconnect()
		return func() { srv.Refuse(false) }
	case 5:
		srv.Split(1 + r.IntN(50))
		return func() { srv.Split(0) }
	case 6:
		some.Times, some.Delay = 100, 20*time.Millisecond
		return srv.Inject(some)
	case 7:
		some.Drop = true
		return srv.Inject(some)
	case 8:
		some.Duplicate = true
		return srv.Inject(some)
	case 9:
		some.Replace = []byte{0xff}
		return srv.Inject(some)
	case 10:
		return srv.Cut(mockserver.Cut{Direction: mockserver.Direction(r.IntN(2)), After: r.IntN(5000), Times: 5})
	default:
		for range 300 {
			srv.Publish("*", make([]byte, 100))
		}
	}
	return func() {}
}
