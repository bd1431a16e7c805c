package main

import (
	"context"
	"sync"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/throttr-go/throttr/memory"
)

// newMemory returns a backend with its defaults, with room for the keys.
func newMemory(j job) *memory.Backend {
	return memory.New(memory.WithMaxKeys(max(memory.DefaultMaxKeys, 2*j.keys)))
}

var memoryAlone = contender{
	name: "throttr/memory",
	does: "`Hit` of the backend in memory: an exact fixed window per key, bounded in number",
	start: func(_ context.Context, j job) (*subject, error) {
		m, most := newMemory(j), uint64(j.limit)
		return &subject{
			do: func(ctx context.Context, key string) (bool, error) {
				w, err := m.Hit(ctx, key, window, most, 1)
				return w.Count <= most, err
			},
			close: func() { m.Close() },
		}, nil
	},
}

var memoryLimit = contender{
	name: "RateLimit on throttr/memory",
	does: "`RateLimit.Hit` on it: the same, with the decision and when to come again",
	start: func(_ context.Context, j job) (*subject, error) {
		m := newMemory(j)
		return &subject{do: hits(m, j.limit), close: func() { m.Close() }}, nil
	},
}

var goLimiter = contender{
	name: "go-limiter", module: "github.com/sethvargo/go-limiter",
	does: "`Take` of its memorystore: a bucket per key that is filled up at each interval, counted from the first hit, which " +
		"makes it a fixed window; not bounded, swept every 6 hours",
	start: func(_ context.Context, j job) (*subject, error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(j.limit), Interval: window})
		if err != nil {
			return nil, err
		}
		return &subject{
			do: func(ctx context.Context, key string) (bool, error) {
				_, _, _, ok, err := store.Take(ctx, key)
				return ok, err
			},
			close: func() { store.Close(context.Background()) },
		}, nil
	},
}

var ulule = contender{
	name: "ulule/limiter", module: "github.com/ulule/limiter/v3",
	does: "`Get` on its memory store: a fixed window per key; not bounded, cleaned every 30 s",
	start: func(_ context.Context, j job) (*subject, error) {
		l := limiter.New(ululememory.NewStore(), limiter.Rate{Period: window, Limit: int64(j.limit)})
		return &subject{do: func(ctx context.Context, key string) (bool, error) {
			res, err := l.Get(ctx, key)
			return !res.Reached, err
		}}, nil
	},
}

var throttledGCRA = contender{
	name: "throttled", module: "github.com/throttled/throttled/v2",
	does: "GCRA on its memory store: a bucket that refills all the time; keys are never forgotten",
	start: func(_ context.Context, j job) (*subject, error) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate: throttled.PerDuration(j.limit, window), MaxBurst: j.limit - 1,
		})
		if err != nil {
			return nil, err
		}
		return &subject{do: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}}, nil
	},
}

var xTimeRate = contender{
	name: "x/time/rate", module: "golang.org/x/time",
	does: "a limiter for each key in a map with a mutex, as its users keep them: a bucket that refills all the time; it has no " +
		"keys of its own, and nothing removes them",
	start: func(_ context.Context, j job) (*subject, error) {
		var mu sync.Mutex
		limiters := map[string]*rate.Limiter{}
		return &subject{do: func(_ context.Context, key string) (bool, error) {
			mu.Lock()
			l := limiters[key]
			if l == nil {
				l = rate.NewLimiter(rate.Limit(float64(j.limit)/window.Seconds()), j.limit)
				limiters[key] = l
			}
			mu.Unlock()
			return l.Allow(), nil
		}}, nil
	},
}
