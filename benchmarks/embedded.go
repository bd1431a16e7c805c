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
)

var goLimiter = contender{
	name: "go-limiter", module: "github.com/sethvargo/go-limiter",
	does: "`Take` of its memorystore: a bucket per key that is refilled at each interval, counted from the first hit, which " +
		"makes it a fixed window; in unbounded number, swept every 6 hours",
	start: func(_ context.Context, s setup) (*instance, error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.limit), Interval: s.scale})
		if err != nil {
			return nil, err
		}
		return &instance{
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
	does: "`Get` on its memory store: a fixed window per key; in unbounded number, cleaned every 30 s",
	start: func(_ context.Context, s setup) (*instance, error) {
		l := limiter.New(ululememory.NewStore(), limiter.Rate{Period: s.scale, Limit: int64(s.limit)})
		return &instance{do: func(ctx context.Context, key string) (bool, error) {
			res, err := l.Get(ctx, key)
			return !res.Reached, err
		}}, nil
	},
}

var throttledGCRA = contender{
	name: "throttled", module: "github.com/throttled/throttled/v2",
	does: "GCRA on its memory store: a bucket that refills continuously; keys are never removed; it repeats a hit that meets another one",
	start: func(_ context.Context, s setup) (*instance, error) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate: throttled.PerDuration(s.limit, s.scale), MaxBurst: s.limit - 1,
		})
		if err != nil {
			return nil, err
		}
		l.SetMaxCASAttemptsLimit(1 << 20) // with the default of 10, hits fail if two goroutines hit one key
		return &instance{do: func(ctx context.Context, key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}}, nil
	},
}

var xTimeRate = contender{
	name: "x/time/rate", module: "golang.org/x/time",
	does: "a limiter for each key in a map with a mutex, as is usual: a bucket that refills continuously; it has no keys of " +
		"its own, and nothing removes them",
	start: func(_ context.Context, s setup) (*instance, error) {
		var mu sync.Mutex
		limiters := map[string]*rate.Limiter{}
		return &instance{do: func(_ context.Context, key string) (bool, error) {
			mu.Lock()
			l := limiters[key]
			if l == nil {
				l = rate.NewLimiter(rate.Limit(float64(s.limit)/s.scale.Seconds()), s.limit)
				limiters[key] = l
			}
			mu.Unlock()
			return l.Allow(), nil
		}}, nil
	},
}
